#include "trireme/train/run_keeper.h"

#include <algorithm>
#include <utility>

#include "trireme/base/system.h"
#include "trireme/train/checkpoint.h"

namespace trireme {
namespace {

// What a person reads first.
std::string Opening(const RunSettings& settings, const Network& network) {
  const RunConfig& run = settings.run;
  return fmt::format(
      "{} on {}: {} {}{} {} store {},{}{}{} {} parameters, {} of memory for experience", run.algo,
      run.env_identity(), run.total_workers(), run.total_workers() == 1 ? "worker," : "workers,",
      run.actors > 0 ? fmt::format(" {} actor{},", run.processes * run.actors,
                                   run.processes * run.actors == 1 ? "" : "s")
                     : "",
      run.in_step() ? "in step," : "asynchronous,", run.store,
      run.ComputedBy() != RunConfig().ComputedBy() ? fmt::format(" device {},", run.ComputedBy()) : "",
      run.precision != Precision::kFp32 ? fmt::format(" products {},", run.ProductsFor(network.spec())) : "",
      run.split().splits() ? fmt::format(" model parallel {},", run.model_parallel) : "",
      FormatCount(static_cast<double>(network.param_count())), FormatBytes(settings.ExperienceBytes()));
}

}  // namespace

RunKeeper::RunKeeper(const RunSettings& settings, const Network& network, const RunFolder* folder,
                     TrainObserver* observer, const TrainOptions& options)
    : settings_(settings),
      run_(settings.run),
      network_(network),
      folder_(folder),
      observer_(observer),
      options_(options),
      best_(keeps_checkpoints()) {}

void RunKeeper::GoOn(RunProgress& progress) {
  if (folder_ != nullptr) best_.GoOn(*folder_, progress);
}

void RunKeeper::Begin(std::int64_t steps) {
  first_step_ = steps;
  last_checkpoint_s_ = MonotonicSeconds();
}

void RunKeeper::Open(const RunProgress& progress) {
  if (opened_) return;
  if (folder_ != nullptr) {
    log_ = std::make_unique<RunLog>(*folder_, settings_.fields.ToToml(), progress, options_.json);
    log_->printer().Note(Opening(settings_, network_));
    SayWhenOpened(DescribeLosses(settings_.env()));
    SayWhenOpened(DescribeExchange(run_));
    for (const std::string& line : opening_lines_) log_->printer().Note(line);
  }
  opened_ = true;
}

void RunKeeper::Record(const Evaluation& evaluation, const MakePolicy& policy, double wall_s, bool leads,
                       RunProgress& progress) {
  const bool is_best = may_lead() && best_.Offer(evaluation, policy, progress);
  if (!leads) return;
  Open(progress);
  if (observer_ != nullptr) observer_->OnEvaluation(progress.steps, evaluation);
  if (evaluation.cut_off > 0 && log_) {
    log_->printer().Note(DescribeCutOff(evaluation.cut_off, evaluation.episodes, run_.eval_max_steps));
  }
  if (is_best && log_) {
    log_->printer().Note(fmt::format("{:>8} steps  {:>6.2f} s  best evaluation so far {:.1f} +- {:.1f}",
                                     FormatCount(static_cast<double>(progress.steps)), wall_s,
                                     evaluation.mean, evaluation.std));
  }
}

void RunKeeper::Report(const MetricRow& measured, double wall_s, const RunProgress& progress) {
  const double rate =
      static_cast<double>(progress.steps - first_step_) / (MonotonicSeconds() - options_.started_s);
  MetricRow row(progress.steps, wall_s);
  row.Set("steps_per_s", rate);
  for (const auto& [name, value] : measured.values()) row.Set(name, value);
  for (const char* name : {"eval_return_mean", "eval_return_std"})
    row.Set(name, measured.Get(name));  // NaN: none
  Open(progress);
  if (observer_ != nullptr) observer_->OnRow(row);
  if (!log_) return;
  log_->Append(row);
  log_->printer().Update(
      {.steps = progress.steps,
       .total_steps = run_.steps,
       .wall_s = wall_s,
       .steps_per_s = rate,
       .episode_return = row.Get("episode_return_mean"),
       .eval_return = progress.eval_mean,
       .target = run_.stop_at_target ? run_.target.value_or(Progress::kUnknown) : Progress::kUnknown});
}

void RunKeeper::WriteCheckpoint(std::vector<std::string> states, StateWriter&& learned,
                                RunProgress& progress) {
  Open(progress);
  if (folder_ == nullptr) return;
  const int members = run_.split().members;
  bool complete = static_cast<int>(states.size()) == run_.total_workers();
  // A worker with actors may have nothing of its own; any other that hands in nothing had too much.
  for (std::size_t rank = 0; rank < states.size(); rank += members) {
    complete &= run_.has_actors() || !states[rank].empty();
  }
  StateWriter state;
  for (int rank = 0; complete && rank < static_cast<int>(states.size()); rank += members) {
    if (!states[rank].empty()) state.Merge(std::exchange(states[rank], {}), WorkerPrefix(run_, rank));
  }
  progress.metrics_offset = log_->Flush();
  best_.Write(*folder_, run_, network_, progress);
  SaveRunState(run_, network_, progress, std::move(learned), complete, state);
  trireme::WriteCheckpoint(folder_->path(), progress.steps, std::move(state));
  best_.RemoveOthers(*folder_, progress);
  last_checkpoint_s_ = MonotonicSeconds();
}

bool RunKeeper::CheckpointDue() const {
  return folder_ != nullptr && MonotonicSeconds() - last_checkpoint_s_ >= run_.checkpoint_every_s;
}

}  // namespace trireme
