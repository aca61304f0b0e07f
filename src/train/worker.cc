#include "trireme/train/worker.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/run_log.h"

namespace trireme {
namespace {

// What a person reads first.
std::string Opening(const RunSettings& settings, const Network& network) {
  const RunConfig& run = settings.run;
  return fmt::format("{} on {}: {} {} {} store {}, {} parameters, {} of memory for experience", run.algo,
                     run.env, run.total_workers(), run.total_workers() == 1 ? "worker," : "workers,",
                     run.asynchronous() ? "asynchronous," : "in step,", run.store,
                     FormatCount(static_cast<double>(network.param_count())),
                     FormatBytes(settings.ExperienceBytes()));
}

// Shards that are begun when the run has made steps must not draw what was drawn before, by a worker that had
// their place or by this run before it was interrupted.
std::uint64_t SeedOfLateStart(std::uint64_t seed, std::int64_t steps) {
  if (steps == 0) return seed;
  const PhiloxBlock bits =
      Philox(seed, StreamCounter(Purpose::kLateStart, 0, static_cast<std::uint64_t>(steps), 0));
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace

Worker::Worker(const RunSettings& settings, const Network& network, const RunFolder* folder,
               const TrainOptions& options, WorkerGroup& group, int thread, std::span<const float> initial,
               const std::optional<StateReader>& checkpoint)
    : settings_(settings),
      run_(settings.run),
      network_(network),
      executor_(network),
      folder_(folder),
      options_(options),
      group_(group),
      links_(settings, group, thread, initial),
      comm_(links_.comm()),
      store_(links_.store()),
      ledger_(links_, options),
      evaluator_(settings.env(), run_.seed, run_.eval_episodes, run_.shards) {
  Start(checkpoint);
  ledger_.GoOn(progress_);
  first_step_ = progress_.steps;
  last_checkpoint_s_ = MonotonicSeconds();
  if (leader() && !Done()) BecomeLeader();
  if (links_.session() != nullptr && thread == 0 && !leader()) {
    options_.say(fmt::format("joined as worker {} after {} steps; worker {} leads", links_.session()->rank(),
                             FormatCount(static_cast<double>(progress_.steps)), links_.session()->leader()));
  }
}

Worker::~Worker() = default;

// What the store holds is known before the worker takes part, its rank afterwards, and with it its shards.
void Worker::Start(const std::optional<StateReader>& checkpoint) {
  if (checkpoint) {
    LoadProgress(*checkpoint, Origin(), run_, network_, progress_);
    LoadStore(*checkpoint, Origin(), run_, comm_.rank(), store_);
    if (MayLead()) best_.GoOn(*folder_, progress_);
    if (leader()) group_.steps.store(progress_.steps);
  }
  progress_.AimAt(run_.target);
  if (ServerSession* const session = links_.session()) session->OfferSteps(progress_.steps);
  Enter(checkpoint);
}

// What errors call the place of the checkpoint.
std::string Worker::Origin() const {
  return folder_ == nullptr ? "the folder of the run" : folder_->path().string();
}

// Takes part, or takes part again. Where others have begun before, it goes on from what they hold in common,
// with shards that nobody has; else all begin together, from the checkpoint if there is one.
void Worker::Enter(const std::optional<StateReader>& checkpoint) {
  const bool done = Done();
  const ServerSession::Entry entry = links_.Join();
  ServerSession* const session = links_.session();
  Boundary boundary;
  if (!entry.state.empty()) boundary = DecodeBoundary(entry.state, progress_);
  if (entry.at_boundary) {
    entered_ = boundary.decision;
  } else if (session != nullptr) {
    progress_.steps = entry.state.empty() ? session->steps() : std::max(session->steps(), progress_.steps);
  }
  // Threads that come after the first of their process has ended the run have nothing left to do.
  const bool first_thread = links_.threads().rank() == 0;
  if (session != nullptr && session->finished() && rank_ < 0 && !done && first_thread) {
    throw RunHasEnded(fmt::format(
        "the run on server {} has ended after {} steps: its result is with the worker that led it. "
        "For another run start the servers with another --dir",
        session->link(0).address(), progress_.steps));
  }
  evaluations_passed_ = run_.eval_every == 0 ? 0 : progress_.steps / run_.eval_every;

  const int rank = session != nullptr ? session->rank() : comm_.rank();
  if (rank != rank_) MakeAlgorithm(rank, SeedOfLateStart(run_.seed, progress_.steps));
  if (checkpoint && entry.state.empty()) LoadAlgorithm(*checkpoint, Origin(), run_, rank, *algorithm_);
  LoadCommon(boundary);
}

void Worker::MakeAlgorithm(int rank, std::uint64_t seed) {
  const int own = run_.asynchronous() ? run_.shards : run_.shards / run_.total_workers();
  rank_ = rank;
  algorithm_.reset();  // its memory first
  algorithm_ = settings_.algorithm->Make({.env = settings_.env(),
                                          .executor = executor_,
                                          .store = store_,
                                          .seed = seed,
                                          .shards = run_.shards,
                                          .first_shard = rank * own,
                                          .own_shards = own});
}

void Worker::LoadCommon(const Boundary& boundary) {
  if (boundary.common) algorithm_->LoadCommon(StateReader(*boundary.common));
}

// The folder changes only once the checkpoint is known to fit.
void Worker::BecomeLeader() {
  log_ = std::make_unique<RunLog>(*folder_, settings_.fields.ToToml(), progress_, options_.json);
  log_->printer().Note(Opening(settings_, network_));
}

// A worker may come to lead at any answer of a server, when the one before it is given up.
RunLog& Worker::log() {
  if (!log_) BecomeLeader();
  return *log_;
}

void Worker::Run() {
  try {
    if (run_.elastic()) return RunElastic();
    if (links_.session() == nullptr) ledger_.Gather();
    if (run_.asynchronous()) {
      RunOnItsOwn();
    } else {
      RunInStep();
    }
    if (ServerSession* const session = links_.session()) {
      // Those that were left behind learn that it is over, whoever is left to say so.
      if (!interrupted_) session->Finish();
      session->Leave();
      if (ledger_.accounts().empty()) {
        ledger_.KeepOwn();
        ledger_.SumInto(progress_, run_.asynchronous());
      }
    }
  } catch (const ServerLost& lost) {
    if (links_.threads().rank() != 0) throw;
    LeaveCheckpoint();
    throw ServerLost(fmt::format("{}. What this worker had is in {}: continue with trireme train --resume {}",
                                 lost.what(), folder_->path().string(), folder_->path().string()));
  }
}

void Worker::RunInStep() {
  for (bool begins = true, more = true; more;) {
    try {
      const Decision decision = std::exchange(begins, false) ? Begin() : Step();
      more = Follow(decision);
    } catch (const FellBehind&) {
      Enter({});  // the others have left this worker behind
      begins = true;
    }
  }
}

// Where this worker comes in: at the start of the run, or between two iterations of the others. Those that
// begin together on servers may each have come with something else; all begin with what their leader has.
Decision Worker::Begin() {
  ServerSession* const session = links_.session();
  if (session != nullptr && session->finished()) return {.stop = true};
  if (entered_) return *std::exchange(entered_, {});
  ServerCommunicator* const boundaries = links_.boundaries();
  if (boundaries == nullptr) return {.stop = Done()};
  const Boundary boundary = AnnounceTo(*boundaries, {.stop = Done()});
  LoadCommon(boundary);
  return boundary.decision;
}

// One iteration of all.
Decision Worker::Step() {
  MetricRow row;
  Iterate(row);
  if (EvaluationDue()) EvaluateTogether(row);
  if (leader()) {
    Report(row);
  } else if (StopRequested() && links_.led_elsewhere()) {
    return {.stop = true};  // leaves; the others go on
  }
  return Announce(Decide());
}

bool Worker::Follow(const Decision& decision) {
  if (decision.checkpoint) Checkpoint();
  interrupted_ = decision.stop && !Done();
  return !decision.stop;
}

// Nobody waits for anybody, except in Meet().
void Worker::RunOnItsOwn() {
  comm_.Barrier();  // all have loaded their part of a checkpoint
  if (Done()) return;
  for (bool stop = false; !stop;) {
    MetricRow row;
    Iterate(row);
    if (leader() && !StepsDone()) {
      if (EvaluationDue()) EvaluateAlone(row);
      Report(row);
      row = {};
      const Decision wanted = Decide();
      if (wanted.checkpoint || wanted.stop) group_.meeting.store(true);
    }
    if (StepsDone() || group_.meeting.load()) stop = Meet(row);
  }
}

// All workers of an asynchronous run come together, after whichever iteration each of them is in: nobody
// pulls or pushes meanwhile. Returns whether the run ends here.
bool Worker::Meet(MetricRow& row) {
  if (group_.schedule) group_.schedule->Leave(comm_.rank());
  comm_.Barrier();
  progress_.steps = group_.steps.load();
  if (leader()) {
    group_.meeting.store(false);
    if (!reached_with_.empty()) {
      // Others have gone on since; what the run leaves is what was seen to reach the target.
      group_.shared->Assign(reached_with_);
    } else if (StepsDone()) {
      store_.Refresh();
      EvaluateAlone(row);
      Report(row);
    }
  }
  const Decision decision = Announce(Decide());
  store_.Refresh();
  return !Follow(decision);
}

// Workers of a parameter server that move on their own: they share nothing but the servers, which count the
// steps, say who leads, and when the run has ended.
void Worker::RunElastic() {
  ServerSession& session = *links_.session();
  if (Done() && leader()) session.Finish();
  while (!session.finished()) {
    if (StepsDone() && !leader()) {
      // Only an evaluation is missing, or a leader to make it.
      if (StopRequested()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      session.Pull(true);
      continue;
    }
    MetricRow row;
    Iterate(row);
    if (leader() ? !Lead(row) : StopRequested()) break;
  }
  interrupted_ = !session.finished();
  session.Rest();  // siblings that are ahead wait for nobody who has stopped
  ledger_.GatherOrKeepOwn();
  ledger_.SumInto(progress_, run_.asynchronous());
  if (log_) WriteCheckpointOf({});
}

// What the leader does between two iterations. False when the run ends.
bool Worker::Lead(MetricRow& row) {
  if (EvaluationDue()) EvaluateAlone(row);
  Report(row);
  const Decision decision = Decide();
  if (!decision.stop) {
    if (decision.checkpoint) {
      ledger_.KeepOwn();
      WriteCheckpointOf({});
    }
    return true;
  }
  if (Done()) {
    // Others have gone on since; what the run leaves is what was evaluated.
    links_.server_store()->Keep(params());
    links_.session()->Finish();
  }
  return false;
}

// The servers are gone: what this worker last saw of the parameters is kept.
void Worker::LeaveCheckpoint() {
  ledger_.KeepOwn();
  WriteCheckpointOf({});
}

void Worker::Iterate(MetricRow& row) {
  const double begun_s = MonotonicSeconds(), waited_s = ledger_.traffic().idle_s;
  const auto busy_s = [&] { return MonotonicSeconds() - begun_s - (ledger_.traffic().idle_s - waited_s); };
  algorithm_->Iterate(static_cast<double>(progress_.steps) / static_cast<double>(run_.steps), row);
  if (options_.straggler.worker == comm_.rank()) {
    std::this_thread::sleep_for(std::chrono::duration<double>((options_.straggler.factor - 1) * busy_s()));
  }
  ledger_.AddBusy(busy_s());
  CountSteps();
}

void Worker::CountSteps() {
  const std::int64_t steps = algorithm_->steps_per_iteration();
  if (!run_.asynchronous()) {
    ledger_.AddSteps(steps / run_.total_workers());
    progress_.steps += steps;
    if (links_.session() != nullptr) links_.session()->AddSteps(steps / run_.total_workers());
    return;
  }
  ledger_.AddSteps(steps);
  if (ServerSession* const session = links_.session()) {
    session->AddSteps(steps);
    progress_.steps = session->steps();
    return;
  }
  const std::int64_t all = group_.steps.fetch_add(steps) + steps;
  // Under a schedule a worker counts as if the others kept pace with it: how far they really are depends on
  // time.
  progress_.steps = group_.schedule ? progress_.steps + steps * run_.workers : all;
}

// At the end, and in the iteration that passes a multiple of eval_every. In a synchronous run every worker
// comes to the same answer.
bool Worker::EvaluationDue() {
  if (StepsDone()) return true;
  if (run_.eval_every == 0) return false;
  const std::int64_t before = std::exchange(evaluations_passed_, progress_.steps / run_.eval_every);
  return evaluations_passed_ > before;
}

// The leader decides for all, because clocks and signals differ between workers. The others have the same
// answer to all that does not depend on those, should one of them lead by the time it is heard.
Decision Worker::Decide() const {
  const bool stop = Done() || StopRequested();
  // A meeting in the middle would change the order a schedule gives.
  const bool due = !group_.schedule && MonotonicSeconds() - last_checkpoint_s_ >= run_.checkpoint_every_s;
  return {.checkpoint = stop || due, .stop = stop};
}

// All end an iteration with what the leader has decided.
Decision Worker::Announce(Decision decision) {
  if (ServerCommunicator* const boundaries = links_.boundaries()) {
    return AnnounceTo(*boundaries, decision).decision;
  }
  double values[] = {static_cast<double>(decision.checkpoint), static_cast<double>(decision.stop)};
  comm_.Broadcast(std::span<double>(values));
  return {.checkpoint = values[0] != 0, .stop = values[1] != 0};
}

Boundary Worker::AnnounceTo(ServerCommunicator& boundaries, Decision decision) {
  Boundary own{decision};
  if (leader()) {
    StateWriter common;
    algorithm_->SaveCommon(common);
    own.common = std::move(common).Encode();
  }
  const std::string said = boundaries.Boundary(EncodeBoundary(own, progress_), own.common.has_value());
  return DecodeBoundary(said, progress_);
}

void Worker::EvaluateTogether(MetricRow& row) {
  const int own = run_.shards / run_.total_workers();
  Record(evaluator_.Run(*algorithm_, comm_, comm_.rank() * own, own), row);
}

// While the others go on. Under a schedule the newest parameters are a matter of time, the last seen are not.
void Worker::EvaluateAlone(MetricRow& row) {
  if (!group_.schedule) store_.Refresh();
  ThreadGroup alone(1);
  ThreadCommunicator comm(alone, 0);
  const bool reached_before = progress_.reached;
  Record(evaluator_.Run(*algorithm_, comm, 0, run_.shards), row);
  if (run_.stop_at_target && progress_.reached && !reached_before)
    reached_with_.assign(params().begin(), params().end());
}

void Worker::Record(const Evaluation& evaluation, MetricRow& row) {
  progress_.eval_mean = evaluation.mean;
  progress_.eval_std = evaluation.std;
  progress_.eval_steps = progress_.steps;
  row.Set("eval_return_mean", evaluation.mean);
  row.Set("eval_return_std", evaluation.std);
  if (MayLead() && best_.Offer(evaluation, store_, *algorithm_, progress_) && leader()) {
    log().printer().Note(fmt::format("{:>8} steps  {:>6.2f} s  best evaluation so far {:.1f} +- {:.1f}",
                                     FormatCount(static_cast<double>(progress_.steps)), ledger_.wall_s(),
                                     evaluation.mean, evaluation.std));
  }
  if (!progress_.reached && evaluation.mean >= run_.target) {
    progress_.reached = true;
    progress_.time_to_target_s = ledger_.wall_s();
    progress_.steps_to_target = progress_.steps;
  }
}

// Every worker hands in its account and its state; the leader adds what is common and writes the file while
// the others wait, so that a failure to write reaches everyone.
void Worker::Checkpoint() {
  for (double written = 0; written == 0;) {
    ledger_.Gather();
    StateWriter own;
    SaveWorkerState(run_, store_, *algorithm_, own);
    std::vector<std::string> states = ledger_.GatherAside(std::move(own).Encode());
    if (leader()) {
      WriteCheckpointOf(std::move(states));
      written = 1;
    }
    if (links_.boundaries() == nullptr) return comm_.Barrier();
    comm_.Broadcast(std::span(&written, 1));  // 0 when the leader is gone and another must write its own
  }
}

// `states`: of all ranks. Of those that are not there it is empty: then the checkpoint has parameters, but no
// experience.
void Worker::WriteCheckpointOf(std::vector<std::string> states) {
  const bool complete = static_cast<int>(states.size()) == run_.total_workers() &&
                        std::ranges::none_of(states, [](const std::string& state) { return state.empty(); });
  StateWriter state;
  for (int rank = 0; complete && rank < static_cast<int>(states.size()); ++rank) {
    state.Merge(std::exchange(states[rank], {}), WorkerPrefix(run_, rank));
  }
  ledger_.SumInto(progress_, run_.asynchronous());
  progress_.metrics_offset = log().Flush();
  best_.Write(*folder_, run_, network_, progress_);
  SaveRunState(run_, network_, progress_, store_, *algorithm_, complete, state);
  WriteCheckpoint(folder_->path(), progress_.steps, std::move(state));
  best_.RemoveOthers(*folder_, progress_);
  last_checkpoint_s_ = MonotonicSeconds();
}

void Worker::Report(const MetricRow& measured) {
  const double wall_s = ledger_.wall_s();
  const double rate =
      static_cast<double>(progress_.steps - first_step_) / (MonotonicSeconds() - options_.started_s);
  MetricRow row(progress_.steps, wall_s);
  row.Set("steps_per_s", rate);
  for (const auto& [name, value] : measured.values()) row.Set(name, value);
  for (const char* name : {"eval_return_mean", "eval_return_std"})
    row.Set(name, measured.Get(name));  // NaN: none
  log().Append(row);
  log().printer().Update({.steps = progress_.steps,
                          .total_steps = run_.steps,
                          .wall_s = wall_s,
                          .steps_per_s = rate,
                          .episode_return = row.Get("episode_return_mean"),
                          .eval_return = progress_.eval_mean,
                          .target = run_.stop_at_target ? run_.target : Progress::kUnknown});
}

}  // namespace trireme
