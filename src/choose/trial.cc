#include "trireme/choose/trial.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/metrics/figures.h"
#include "trireme/train/in_step_loop.h"
#include "trireme/train/run_state.h"
#include "trireme/train/topology.h"

namespace trireme {
namespace {

struct Enough {};  // thrown out of the push that was the last

// What the workers of a process share.
struct TrialEnd {
  double seconds;
  const std::atomic<bool>* stop;
  std::atomic<bool> over{false};  // for workers that move on their own
};

// A worker of the trial. It is the store of its algorithm, too: one that watches the real one.
class TrialWorker final : ParameterStore {
 public:
  TrialWorker(const RunContext& context, Topology& topology, int thread, TrialEnd& end)
      : settings_(context.settings), end_(end), links_(topology.Connect(thread)) {
    const RunConfig& run = settings_.run;
    const auto* const processes = context.options.processes;
    const int first = processes == nullptr ? 0 : processes->rank() * run.workers;
    executor_ = links_->MakeExecutor(context.network, run.ComputingOf(first + thread));
    links_->Join(0);
    const GradientGroup group = links_->gradient_group();
    const auto [first_shard, own_shards] = group.Own(run.shards);
    algorithm_ = settings_.algorithm->Make({.env = settings_.env(),
                                            .executor = *executor_,
                                            .store = *this,
                                            .seed = run.seed,
                                            .shards = run.shards,
                                            .first_shard = group.index * run.shards + first_shard,
                                            .own_shards = own_shards});
  }

  void Run() {
    try {
      for (since_s_ = MonotonicSeconds();; iteration_ += pushed_ ? 1 : 0) {
        MeetOthers();
        MetricRow row;
        pushed_ = false;
        algorithm_->Iterate(0, row);
      }
    } catch (const Enough&) {
    }
  }

  double steps_per_s() const {
    return static_cast<double>(algorithm_->steps_per_iteration()) /
           IterationSeconds(rounds_, algorithm_->updates_per_iteration());
  }

 private:
  // Those in step do at the boundary between two iterations.
  void MeetOthers() {
    auto* const in_step = dynamic_cast<InStepLinks*>(links_.get());
    if (in_step == nullptr) return;
    Boundary own;
    RunProgress progress;
    if (in_step->open() && in_step->leads()) {
      StateWriter common;
      algorithm_->SaveCommon(common);
      own.common = std::move(common).Encode();
    }
    in_step->Announce(own, progress);
  }

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    const double norm = links_->store().Push(gradient, rule);
    const double now_s = MonotonicSeconds();
    if (rounds_.empty()) begun_s_ = now_s;
    rounds_.push_back({iteration_, now_s - since_s_});
    pushed_ = true;
    if (Over(now_s)) throw Enough();
    since_s_ = rounds_.size() == look_ ? MonotonicSeconds() : now_s;
    return norm;
  }

  bool TimeIsUp(double now_s) const {
    if (end_.stop != nullptr && end_.stop->load()) return true;
    const bool known = algorithm_->updates_per_iteration() > 0 || iteration_ > 0;
    return known && now_s - begun_s_ >= end_.seconds;
  }
  // Those in step ask the first one, after 2, 4, 8, ... rounds. Others go by what the first thread says.
  bool Over(double now_s) {
    const std::size_t rounds = rounds_.size();
    if (rounds < 2) return false;
    if (settings_.run.in_step()) {
      if (!std::has_single_bit(rounds)) return false;
      look_ = rounds;
      double over = TimeIsUp(now_s);
      links_->everyone().Broadcast(std::span<double>(&over, 1));
      return over != 0;
    }
    if (links_->thread() == 0 && TimeIsUp(now_s)) end_.over.store(true);
    return end_.over.load();
  }

  void Share(std::span<double> values) override { links_->store().Share(values); }
  std::span<const float> Pull() override { return links_->store().Pull(); }
  std::span<const float> params() const override { return links_->store().params(); }
  void Refresh() override { links_->store().Refresh(); }
  Traffic traffic() const override { return links_->store().traffic(); }
  Staleness staleness() const override { return links_->store().staleness(); }
  void Save(StateWriter& out) const override { links_->store().Save(out); }
  void Load(const StateReader& in) override { links_->store().Load(in); }

  const RunSettings& settings_;
  TrialEnd& end_;
  std::unique_ptr<WorkerLinks> links_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Algorithm> algorithm_;
  std::vector<TimedRound> rounds_;
  int iteration_ = 0;
  bool pushed_ = false;               // in this iteration
  double since_s_ = 0, begun_s_ = 0;  // end of the last push, and of the first
  std::size_t look_ = 0;              // rounds after which it was last asked whether to end
};

}  // namespace

double IterationSeconds(std::span<const TimedRound> rounds, std::int64_t updates_per_iteration) {
  if (rounds.size() < 2) return kUnknown;
  const int last = rounds.back().iteration;  // which is not over
  const int begin = last >= 2 ? 1 : 0;       // iterations [begin, last) are looked at, or all there is
  const auto is_over = [&](const TimedRound& round) {
    return round.iteration >= begin && round.iteration < last;
  };
  double first_s = 0, firsts = 0, other_s = 0, others = 0;
  for (std::size_t i = 1; i < rounds.size(); ++i) {
    if (last >= 2 && !is_over(rounds[i])) continue;
    const bool first = rounds[i - 1].iteration != rounds[i].iteration;
    (first ? first_s : other_s) += rounds[i].seconds;
    (first ? firsts : others) += 1;
  }
  first_s = firsts > 0 ? first_s / firsts : rounds[0].seconds;
  const double updates = last > 0
                             ? static_cast<double>(std::ranges::count_if(rounds, is_over)) / (last - begin)
                             : static_cast<double>(updates_per_iteration);
  if (updates == 0) return kUnknown;
  return first_s + (updates - 1) * (others > 0 ? other_s / others : first_s);
}

double TrySettings(const RunSettings& settings, const TrainOptions& chosen, double seconds) {
  TrainOptions options = chosen;
  options.audit = false;
  options.say = [](const std::string&) {};
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  std::vector<float> initial(network.param_count());
  network.Initialise(settings.run.seed, initial);
  const RunContext context{settings, network, options, nullptr, initial};
  const std::unique_ptr<Topology> topology = settings.run.store_entry().make(context);
  const int threads = settings.run.workers;
  TrialEnd end{seconds, options.stop};
  std::vector<double> steps_per_s(threads);
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto body = [&](int thread) {
    try {
      TrialWorker worker(context, *topology, thread, end);
      worker.Run();
      steps_per_s[thread] = worker.steps_per_s();
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
      topology->Abort();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
    body(0);
  }
  if (options.stop != nullptr && options.stop->load()) Fail("interrupted");
  if (failure) std::rethrow_exception(failure);
  if (settings.run.in_step()) return steps_per_s[0];
  double sum = 0;
  for (const double each : steps_per_s) sum += each;
  return sum;
}

}  // namespace trireme
