#include "trireme/train/evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// Copies first, ..., first + size - 1, which step together and run an episode each.
class Evaluator::Part {
 public:
  Part(const EnvEntry& env, const EvaluationPlan& plan, int first, int size)
      : env_(env), plan_(plan), first_(first), size_(size) {}

  // Episodes `begin` to `end` of the evaluation are those of all copies, as far as there are so many.
  void Start(int begin, int end, Episodes& all) {
    begin_ = begin + first_;
    n_ = left_ = std::clamp(end - begin_, 0, size_);
    if (n_ == 0) return;
    Reset();
    steps_ = 0;
    obs_.resize(static_cast<std::size_t>(size_) * env_.spec.obs.size());
    actions_.resize(static_cast<std::size_t>(size_) * env_.spec.action.size());
    done_.assign(n_, false);
    so_far_.assign(n_, 0.0);
    if (endless()) std::ranges::fill(all.cut_off.subspan(begin_, n_), 0.0);
  }

  // Returns whether there is anything left to do. Copies that do not count act too: they step, and not everything may
  // be allowed to them.
  bool BeginStep(Algorithm& algorithm) {
    if (left_ == 0) return false;
    ObsToFloat(env_.spec.obs, batch_->obs().data(), static_cast<std::size_t>(size_), obs_.data());
    algorithm.Act(obs_, env_.spec.masks ? batch_->masks().data() : nullptr, size_, actions_);
    batch_->StepBegin(actions_);
    under_way_ = true;
    return true;
  }

  // Of the step that was begun, if one was.
  void EndStep(Episodes& all) {
    if (!std::exchange(under_way_, false)) return;
    batch_->StepEnd();
    ++steps_;
    const std::span<const EpisodeEnd> finished = batch_->finished();
    if (!finished.empty()) CheckFinished(*batch_, finished);
    if (env_.spec.masks) CheckMasks(*batch_);
    for (const EpisodeEnd& ended : finished) {
      // Copies go on with further episodes; only the first counts, and only of those that run one.
      if (ended.env >= n_ || done_[ended.env]) continue;
      done_[ended.env] = true;
      all.returns[begin_ + ended.env] = ended.episode_return;
      --left_;
    }
    if (endless()) CutOff(all);
  }

 private:
  bool endless() const { return env_.spec.max_episode_steps == 0; }

  void Reset() {
    const auto id = static_cast<std::uint32_t>(begin_);
    if (batch_) return batch_->Reset(plan_.seed, Purpose::kEvalReset, id);
    batch_ = MakeBatch(env_, size_, plan_.seed, Purpose::kEvalReset, id);
  }

  void CutOff(Episodes& all) {
    for (int i = 0; i < n_; ++i) so_far_[i] += batch_->rewards()[i];
    for (int i = 0; steps_ == plan_.max_steps && i < n_; ++i) {
      if (done_[i]) continue;
      all.returns[begin_ + i] = so_far_[i];
      all.cut_off[begin_ + i] = 1;
      --left_;
    }
  }

  const EnvEntry& env_;
  const EvaluationPlan& plan_;
  int first_, size_;
  std::unique_ptr<EnvBatch> batch_;
  bool under_way_ = false;
  int begin_ = 0, n_ = 0;  // episodes; those of the first n_ copies count
  int left_ = 0;           // that are not over
  int steps_ = 0;
  std::vector<float> obs_, actions_;
  std::vector<double> so_far_;  // returns of episodes that may have no end
  std::vector<bool> done_;
};

Evaluator::Evaluator(const EnvEntry& env, const EvaluationPlan& plan) : env_(env), plan_(plan) {
  const int largest = (plan.episodes + plan.groups - 1) / plan.groups;
  const int copies = std::min(largest, Algorithm::kMostActed);
  // A part ends when its own episodes are over, and enough are left on their way while one is acted for.
  const int parts = env.facts.steps_elsewhere ? std::min(4, copies) : 1;
  for (int p = 0; p < parts; ++p) {
    const int first = copies * p / parts, end = copies * (p + 1) / parts;
    parts_.emplace_back(env_, plan_, first, end - first);
  }
}

Evaluator::~Evaluator() = default;

std::optional<Evaluation> Evaluator::Run(Algorithm& algorithm, Communicator& comm, int first, int own,
                                         const EvaluationStop& stop) {
  Episodes all(plan_.episodes, plan_.groups, env_.spec.max_episode_steps == 0);
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

bool Evaluator::RunEpisodes(Algorithm& algorithm, int begin, int end, const std::function<bool()>& stop,
                            Episodes& all) {
  for (Part& part : parts_) part.Start(begin, end, all);
  for (bool more = true; more;) {
    const bool stopped = stop();
    more = false;
    for (Part& part : parts_) {
      part.EndStep(all);
      more |= !stopped && part.BeginStep(algorithm);
    }
    if (stopped) return false;
  }
  return true;
}

}  // namespace trireme
