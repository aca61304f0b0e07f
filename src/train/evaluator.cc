#include "trireme/train/evaluator.h"

#include <algorithm>
#include <cmath>

#include "trireme/env/checked_batch.h"

namespace trireme {

Evaluation Evaluator::Run(Algorithm& algorithm, Communicator& comm, int first, int own) const {
  // The returns, then how many workers have run each group.
  std::vector<double> shared(episodes_ + groups_);
  const std::span<double> returns = std::span(shared).first(episodes_),
                          ran = std::span(shared).subspan(episodes_);
  const auto run = [&](int group) {
    const int begin = episodes_ * group / groups_, end = episodes_ * (group + 1) / groups_;
    for (int part = begin; part < end; part += Algorithm::kMostActed) {
      RunGroup(algorithm, part, std::min(end, part + Algorithm::kMostActed), returns);
    }
    ran[group] = 1;
  };
  for (int group = first; group < first + own; ++group) run(group);
  comm.AllReduceSum(std::span<double>(shared));
  for (int group = 0; group < groups_; ++group) {
    if (ran[group] != 1) run(group);  // its worker has gone (or two think it theirs): everyone runs it
  }

  Evaluation result{.mean = 0, .std = 0, .episodes = episodes_};
  for (const double value : returns) result.mean += value / episodes_;
  for (const double value : returns) result.std += (value - result.mean) * (value - result.mean) / episodes_;
  result.std = std::sqrt(result.std);
  return result;
}

void Evaluator::RunGroup(Algorithm& algorithm, int begin, int end, std::span<double> returns) const {
  const int n = end - begin;
  const std::unique_ptr<EnvBatch> batch =
      MakeBatch(env_, n, seed_, Purpose::kEvalReset, static_cast<std::uint32_t>(begin));
  std::vector<float> obs(static_cast<std::size_t>(n) * env_.spec.obs.size());
  std::vector<float> actions(static_cast<std::size_t>(n) * env_.spec.action.size());
  std::vector<bool> done(n, false);
  for (int left = n; left > 0;) {
    ObsToFloat(env_.spec.obs, batch->obs().data(), static_cast<std::size_t>(n), obs.data());
    algorithm.Act(obs, env_.spec.masks ? batch->masks().data() : nullptr, n, actions);
    batch->Step(actions);
    const std::span<const EpisodeEnd> finished = batch->finished();
    if (!finished.empty()) CheckFinished(*batch, finished);
    for (const EpisodeEnd& ended : finished) {
      if (done[ended.env]) continue;  // copies go on with further episodes; only the first counts
      done[ended.env] = true;
      returns[begin + ended.env] = ended.episode_return;
      --left;
    }
  }
}

}  // namespace trireme
