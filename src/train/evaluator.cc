#include "trireme/train/evaluator.h"

#include <algorithm>
#include <cmath>

#include "trireme/env/checked_batch.h"

namespace trireme {

std::string DescribeCutOff(int cut_off, int episodes, int max_steps) {
  return fmt::format(
      "{} of {} episodes were cut off after {} steps: the environment has no time limit, and "
      "eval_max_steps is the one of evaluations",
      cut_off, episodes, max_steps);
}

// What workers exchange: each has filled in its own part, the rest is 0.
struct Evaluator::Episodes {
  Episodes(int episodes, int groups, bool may_be_cut_off)
      : shared(static_cast<std::size_t>(episodes) * (may_be_cut_off ? 2 : 1) + groups + 1),
        returns(std::span(shared).first(episodes)),
        cut_off(std::span(shared).subspan(episodes, may_be_cut_off ? episodes : 0)),
        ran(std::span(shared).last(groups + 1).first(groups)) {}

  std::vector<double> shared;
  std::span<double> returns;
  std::span<double> cut_off;                   // 1 where so; empty where that cannot be
  std::span<double> ran;                       // how many workers have run each group
  double& stopped() { return shared.back(); }  // by the worker that leads
};

std::optional<Evaluation> Evaluator::Run(Algorithm& algorithm, Communicator& comm, int first, int own,
                                         const EvaluationStop& stop) {
  Episodes all(plan_.episodes, plan_.groups, endless());
  const auto stops = [&] { return stop.leads && stop.requested() ? 1.0 : 0.0; };
  bool complete = true;
  for (int group = first; complete && group < first + own; ++group) {
    complete = RunGroup(algorithm, group, stop.requested, all);
    all.ran[group] = complete;
  }
  all.stopped() = complete ? 0 : stops();
  comm.AllReduceSum(std::span<double>(all.shared));
  if (all.stopped() != 0 || (!complete && stop.may_leave)) return std::nullopt;

  // Of workers that have gone or stopped (or two think them theirs): everyone runs them.
  std::vector<int> left;
  for (int group = 0; group < plan_.groups; ++group) {
    if (all.ran[group] != 1) left.push_back(group);
  }
  if (!left.empty()) {
    const auto begun = std::ranges::find_if(
        left, [&](int group) { return !RunGroup(algorithm, group, stop.requested, all); });
    double stopped = begun == left.end() ? 0 : stops();
    comm.AllReduceSum(std::span<double>(&stopped, 1));
    if (stopped != 0) return std::nullopt;
    for (auto group = begun; group != left.end(); ++group) {
      RunGroup(
          algorithm, *group, [] { return false; }, all);  // whoever leads goes on, and so must this worker
    }
  }

  Evaluation result{.episodes = plan_.episodes};
  for (const double value : all.returns) result.mean += value / plan_.episodes;
  for (const double value : all.returns)
    result.std += (value - result.mean) * (value - result.mean) / plan_.episodes;
  result.std = std::sqrt(result.std);
  result.cut_off = static_cast<int>(std::ranges::count(all.cut_off, 1.0));
  return result;
}

bool Evaluator::RunGroup(Algorithm& algorithm, int group, const std::function<bool()>& stop, Episodes& all) {
  const auto first_of = [&](int g) {
    return static_cast<int>(std::int64_t{plan_.episodes} * g / plan_.groups);
  };
  const int end = first_of(group + 1);
  for (int begin = first_of(group); begin < end; begin += Algorithm::kMostActed) {
    if (!RunEpisodes(algorithm, begin, std::min(end, begin + Algorithm::kMostActed), stop, all)) return false;
  }
  return true;
}

// Episodes first, first + 1, ...
void Evaluator::ResetBatch(int first) {
  const auto id = static_cast<std::uint32_t>(first);
  if (batch_) return batch_->Reset(plan_.seed, Purpose::kEvalReset, id);
  const int largest = (plan_.episodes + plan_.groups - 1) / plan_.groups;
  batch_ = MakeBatch(env_, std::min(largest, Algorithm::kMostActed), plan_.seed, Purpose::kEvalReset, id);
}

bool Evaluator::RunEpisodes(Algorithm& algorithm, int begin, int end, const std::function<bool()>& stop,
                            Episodes& all) {
  const int n = end - begin;
  ResetBatch(begin);
  const std::size_t action_size = env_.spec.action.size();
  std::vector<float> obs(static_cast<std::size_t>(n) * env_.spec.obs.size());
  std::vector<float> actions(batch_->size() * action_size);
  const std::span<float> counting = std::span(actions).first(n * action_size);
  std::vector<double> so_far(endless() ? n : 0);  // returns of episodes that may have no end
  std::ranges::fill(all.cut_off.subspan(endless() ? begin : 0, endless() ? n : 0), 0.0);
  std::vector<bool> done(n, false);
  for (int left = n, step = 1; left > 0; ++step) {
    if (stop()) return false;
    ObsToFloat(env_.spec.obs, batch_->obs().data(), static_cast<std::size_t>(n), obs.data());
    algorithm.Act(obs, env_.spec.masks ? batch_->masks().data() : nullptr, n, counting);
    for (std::size_t i = counting.size(); i < actions.size(); ++i) actions[i] = actions[i % action_size];
    batch_->Step(actions);
    const std::span<const EpisodeEnd> finished = batch_->finished();
    if (!finished.empty()) CheckFinished(*batch_, finished);
    for (const EpisodeEnd& ended : finished) {
      // Copies go on with further episodes; only the first counts, and only those of this group.
      if (ended.env >= n || done[ended.env]) continue;
      done[ended.env] = true;
      all.returns[begin + ended.env] = ended.episode_return;
      --left;
    }
    if (!endless()) continue;
    for (int i = 0; i < n; ++i) so_far[i] += batch_->rewards()[i];
    for (int i = 0; step == plan_.max_steps && i < n; ++i) {
      if (done[i]) continue;
      all.returns[begin + i] = so_far[i];
      all.cut_off[begin + i] = 1;
      --left;
    }
  }
  return true;
}

}  // namespace trireme
