// Updates of DQN against the same made by hand, in double.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trireme/algo/test_dqn.h"
#include "trireme/replay/sampler.h"

namespace trireme {
namespace {

struct UpdateCase {
  const char* name;
  bool double_q = false, dueling = false, prioritised = false;
  double huber = 0;
  int n_step = 1;
};
const UpdateCase kUpdateCases[] = {
    {.name = "Plain"},
    {.name = "Double", .double_q = true},
    {.name = "Dueling", .dueling = true},
    {.name = "Huber", .huber = 0.5},
    {.name = "Prioritised", .prioritised = true},
    {.name = "Everything", .double_q = true, .dueling = true, .prioritised = true, .huber = 0.5, .n_step = 3},
};
class DqnUpdates : public testing::TestWithParam<UpdateCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DqnUpdates, testing::ValuesIn(kUpdateCases),
                         [](const auto& info) { return info.param.name; });

// The first updates of a worker with one shard, all of them after it has filled its replay buffer. The target
// network moves before the first and the fifth of them.
TEST_P(DqnUpdates, MoveTheParametersAsTheFormulasSay) {
  const UpdateCase& c = GetParam();
  constexpr int kBatch = 20, kUpdates = 7, kTargetEvery = 4, kReplay = 200, kBegin = 5;
  constexpr double kRate = 0.2, kTau = 0.6, kAlpha = 0.7, kEps = 0.05;
  const double beta = 0.4 + 0.6 * 0.1 * kBegin;
  const AlgorithmRun run("dqn", "CartPole-v1",
                         {"envs=2",
                          "horizon=40",
                          "rounds=1",
                          "learning_starts=0",
                          "gamma=0.9",
                          "hidden=[7,5]",
                          "optimizer=sgd",
                          "activation=tanh",
                          "max_grad_norm=0",
                          fmt::format("batch={}", kBatch),
                          fmt::format("updates={}", kUpdates),
                          fmt::format("target_every={}", kTargetEvery),
                          fmt::format("target_tau={}", kTau),
                          fmt::format("replay={}", kReplay),
                          fmt::format("learning_rate={}", kRate),
                          fmt::format("double={}", c.double_q),
                          fmt::format("dueling={}", c.dueling),
                          fmt::format("prioritised={}", c.prioritised),
                          fmt::format("priority_alpha={}", kAlpha),
                          "priority_beta=0.4",
                          fmt::format("priority_eps={}", kEps),
                          fmt::format("huber={}", c.huber),
                          fmt::format("n_step={}", c.n_step)});
  const AlgorithmRun::AsynchronousOutcome found = run.Iterate({.iterations = {1}, .first = kBegin});
  const std::vector<Numbers> replay = Remembered(run, found.workers[0].state, 0);

  const PlainTower tower = run.Tower(0);
  const int choices = run.env().spec.action.choices(), obs_size = run.env().spec.obs.size();
  const auto q = [&](const Numbers& params, const Numbers& obs) {
    Numbers out = tower.Forward(params, obs);
    if (!c.dueling) return out;
    const double value = out.back();
    out.pop_back();
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / choices;
    for (double& advantage : out) advantage += value - mean;
    return out;
  };
  PrioritisedSampler sampler(kReplay, kAlpha, kEps);
  for (std::size_t slot = 0; slot < replay.size(); ++slot) sampler.Added(slot);

  Numbers params = ToNumbers(run.initial()), target = params;
  double loss = 0, values = 0, error_sum = 0;
  for (int update = 0; update < kUpdates; ++update) {
    for (std::size_t i = 0; update % kTargetEvery == 0 && i < params.size(); ++i) {
      target[i] = kTau * params[i] + (1 - kTau) * target[i];
    }
    RandomStream random(AlgorithmRun::kSeed, Purpose::kReplay, 0, update);
    std::vector<std::uint32_t> slots(kBatch);
    std::vector<float> weights(kBatch, 1.0f), errors;
    if (c.prioritised) {
      sampler.Sample(random, beta, slots, weights);
    } else {
      for (std::uint32_t& slot : slots) slot = random.NextBelow(static_cast<std::uint32_t>(replay.size()));
    }
    Numbers gradient(params.size(), 0.0);
    for (int i = 0; i < kBatch; ++i) {
      const Numbers& record = replay[slots[i]];
      const Numbers obs(record.begin(), record.begin() + obs_size);
      const Numbers next_obs(record.begin() + obs_size, record.begin() + 2 * obs_size);
      const int action = static_cast<int>(record[2 * obs_size]);
      const int best = BestAction(q(c.double_q ? params : target, next_obs));
      const double y = record[2 * obs_size + 1] + record[2 * obs_size + 2] * q(target, next_obs)[best];
      const double error = q(params, obs)[action] - y, size = std::abs(error);
      const bool linear = c.huber > 0 && size > c.huber;
      loss += weights[i] * (linear ? c.huber * (size - c.huber / 2) : error * error / 2);
      values += q(params, obs)[action];
      error_sum += size;
      errors.push_back(static_cast<float>(size));
      const double d_q = weights[i] * (linear ? std::copysign(c.huber, error) : error) / kBatch;
      Numbers d_out(choices, c.dueling ? -d_q / choices : 0);
      d_out[action] += d_q;
      if (c.dueling) d_out.push_back(d_q);
      tower.AddGradient(params, obs, d_out, gradient);
    }
    for (std::size_t i = 0; i < params.size(); ++i) params[i] -= kRate * gradient[i];
    if (c.prioritised) sampler.Update(slots, errors);
  }
  ExpectSameMove(run, found.params, params);
  const MetricRow& row = found.workers[0].rows[0];
  EXPECT_NEAR(row.Get("q_loss"), loss / (kUpdates * kBatch), 1e-5);
  EXPECT_NEAR(row.Get("q_value"), values / (kUpdates * kBatch), 1e-5);
  EXPECT_NEAR(row.Get("td_error"), error_sum / (kUpdates * kBatch), 1e-5);
}

}  // namespace
}  // namespace trireme
