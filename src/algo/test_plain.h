// Environments and policies by the book, plain loops in double, for the tests of algorithms to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/test_run.h"
#include "trireme/base/rng.h"
#include "trireme/env/registry.h"
#include "trireme/nn/plain_tower.h"

namespace trireme {

// One step of one environment. After the last step of an episode, next_obs is the episode's own.
struct PlainStep {
  Numbers obs, next_obs;
  int action = 0;
  double torque = 0;  // the action, where it is continuous
  double reward = 0;
  bool terminated = false, truncated = false;
};

// Environments first_env, first_env + 1, ... of a run.
class PlainEnvs {
 public:
  PlainEnvs(const EnvEntry& env, int envs, int first_env)
      : batch_(env.make(envs)), first_env_(static_cast<std::uint32_t>(first_env)) {
    batch_->Reset(AlgorithmRun::kSeed, Purpose::kEnvReset, first_env_);
  }

  // Steps each environment with choose(obs, draws of its action).
  template <class Choose>
  std::vector<PlainStep> Step(Choose&& choose) {
    return StepAll([&](PlainStep& step, std::uint32_t env) {
      step.action = choose(
          step.obs, Philox(AlgorithmRun::kSeed, StreamCounter(Purpose::kAction, env, step_number_, 0)));
      return static_cast<float>(step.action);
    });
  }
  // The same for continuous actions: choose(obs, standard normal of its action).
  template <class Choose>
  std::vector<PlainStep> StepContinuous(Choose&& choose) {
    return StepAll([&](PlainStep& step, std::uint32_t env) {
      RandomStream random(AlgorithmRun::kSeed, Purpose::kAction, env, step_number_);
      step.torque = choose(step.obs, random.NextNormal());
      return static_cast<float>(step.torque);
    });
  }

 private:
  template <class Act>
  std::vector<PlainStep> StepAll(Act&& act) {
    std::vector<PlainStep> steps(static_cast<std::size_t>(batch_->size()));
    std::vector<float> actions;
    for (std::size_t b = 0; b < steps.size(); ++b) {
      steps[b].obs = Observation(batch_->obs(), b);
      actions.push_back(act(steps[b], first_env_ + static_cast<std::uint32_t>(b)));
    }
    batch_->Step(actions);
    ++step_number_;
    for (std::size_t b = 0; b < steps.size(); ++b) {
      steps[b].reward = batch_->rewards()[b];
      steps[b].terminated = batch_->terminated()[b] != 0;
      steps[b].truncated = batch_->truncated()[b] != 0;
      const bool ended = steps[b].terminated || steps[b].truncated;
      steps[b].next_obs = Observation(ended ? batch_->final_obs() : batch_->obs(), b);
    }
    return steps;
  }

  Numbers Observation(std::span<const std::byte> obs, std::size_t b) const {
    const std::size_t size = batch_->spec().obs.size();
    const std::span<const float> row = FloatObs(obs).subspan(b * size, size);
    return Numbers(row.begin(), row.end());
  }

  std::unique_ptr<EnvBatch> batch_;
  std::uint32_t first_env_;
  std::uint64_t step_number_ = 0;
};

inline Numbers Softmax(const Numbers& logits) {
  Numbers p;
  for (const double logit : logits) p.push_back(std::exp(logit - *std::ranges::max_element(logits)));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

// The first action whose cumulative probability exceeds the draw.
inline int SampleAction(const Numbers& p, const PhiloxBlock& draws) {
  double left = ToUniform(draws[0]);
  for (std::size_t a = 0; a + 1 < p.size(); ++a) {
    left -= p[a];
    if (left < 0) return static_cast<int>(a);
  }
  return static_cast<int>(p.size()) - 1;
}

// The first of the highest.
inline int BestAction(const Numbers& values) {
  return static_cast<int>(std::ranges::max_element(values) - values.begin());
}

// With as many observations as may be asked for at once; `tower` holds the values to choose by.
inline void ExpectGreedyActions(const std::string& algo, const std::string& env,
                                const Assignments& assignments) {
  const AlgorithmRun run(algo, env, assignments);
  const PlainTower tower = run.Tower(0);
  RandomStream random(1, Purpose::kTest, 0, 0);
  std::vector<float> obs(static_cast<std::size_t>(Algorithm::kMostActed) * run.env().spec.obs.size());
  for (float& value : obs) value = static_cast<float>(random.NextNormal());
  const std::vector<float> actions = run.Act(obs);
  std::vector<float> expected;
  for (auto at = obs.begin(); at != obs.end(); at += run.env().spec.obs.size()) {
    Numbers values = tower.Forward(ToNumbers(run.initial()), Numbers(at, at + run.env().spec.obs.size()));
    values.resize(run.env().spec.action.choices());
    expected.push_back(static_cast<float>(BestAction(values)));
  }
  EXPECT_EQ(actions, expected);
  EXPECT_NE(*std::ranges::min_element(expected), *std::ranges::max_element(expected));
}

// Tensor by tensor: both have moved, and differ by less than a ten-thousandth of the largest move.
inline void ExpectSameMove(const AlgorithmRun& run, const std::vector<float>& found,
                           const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const TensorInfo& tensor : run.network().layout().tensors()) {
    double furthest = 0, difference = 0;
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      furthest = std::max(furthest, std::abs(expected[i] - run.initial()[i]));
      difference = std::max(difference, std::abs(expected[i] - found[i]));
    }
    EXPECT_GT(furthest, 1e-2) << tensor.name << " has hardly moved: the comparison would mean little";
    EXPECT_LE(difference, 1e-4 * furthest) << tensor.name;
  }
}

}  // namespace trireme
