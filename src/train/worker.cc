#include "trireme/train/worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/server/client/server_session.h"
#include "trireme/train/actors.h"

namespace trireme {
namespace {

// Shards that are begun when the run has made steps must not draw what was drawn before, by a worker that had
// their place or by this run before it was interrupted.
std::uint64_t SeedOfLateStart(std::uint64_t seed, std::int64_t steps) {
  if (steps == 0) return seed;
  const PhiloxBlock bits =
      Philox(seed, StreamCounter(Purpose::kLateStart, 0, static_cast<std::uint64_t>(steps), 0));
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

// Among all workers: of this process.
int FirstWorkerOf(const TrainOptions& options, const RunConfig& run) {
  return options.processes == nullptr ? 0 : options.processes->rank() * run.workers;
}

}  // namespace

Worker::Worker(const RunContext& context, Topology& topology, int thread,
               const std::optional<StateReader>& checkpoint)
    : settings_(context.settings),
      run_(context.settings.run),
      network_(context.network),
      folder_(context.folder),
      options_(context.options),
      topology_(topology),
      actors_(context.actors),
      links_(topology.Connect(thread)),
      executor_(links_->MakeExecutor(network_, run_.ComputingOf(FirstWorkerOf(options_, run_) + thread))),
      ledger_(*links_, options_, settings_.env().processes.get()),
      evaluator_(settings_.env(), run_.EvaluationOf(run_.seed, run_.eval_episodes)),
      keeper_(settings_, network_, thread == 0 ? folder_ : nullptr, thread == 0 ? options_.observer : nullptr,
              options_) {
  if (actors_ != nullptr) ledger_.TellsOf(actors_->inference());
  Start(checkpoint);
  ledger_.GoOn(progress_);
  keeper_.Begin(progress_.steps);
  if (links_->leads() && !Done()) keeper_.Open(progress_);
  if (thread == 0 && links_->led_elsewhere()) {
    options_.say(fmt::format("joined as worker {} after {} steps; worker {} leads", links_->rank(),
                             FormatCount(static_cast<double>(progress_.steps)), links_->leader()));
  }
}

// What the store holds is known before the worker takes part, its rank afterwards, and with it its shards.
void Worker::Start(const std::optional<StateReader>& checkpoint) {
  if (checkpoint) {
    LoadProgress(*checkpoint, Origin(), run_, network_, progress_);
    // Only workers of one process have their own part of the store in a checkpoint: there threads are ranks.
    LoadStore(Held(*checkpoint), Origin(), run_, links_->thread(), links_->store());
    keeper_.GoOn(progress_);
  }
  progress_.AimAt(run_.target);
  const Resumed resumed = Enter(checkpoint);
  keeper_.SayWhenOpened(DescribeResumed(resumed, run_.env, progress_.steps));
  if (checkpoint)
    keeper_.SayWhenOpened(DescribeOtherArithmetic(ArithmeticOf(*checkpoint), run_.Arithmetic()));
}

// What errors call the place of the checkpoint.
std::string Worker::Origin() const {
  return folder_ == nullptr ? "the folder of the run" : folder_->path().string();
}

Resumed Worker::Enter(const std::optional<StateReader>& checkpoint) {
  const bool done = Done();
  const WorkerLinks::Entry entry = links_->Join(progress_.steps);
  Boundary boundary;
  if (!entry.boundary.empty()) boundary = DecodeBoundary(entry.boundary, progress_);
  if (entry.others_are_there) {
    entered_ = boundary.decision;
  } else if (entry.steps) {
    progress_.steps = entry.boundary.empty() ? *entry.steps : std::max(*entry.steps, progress_.steps);
  }
  // Threads that come after the first of their process has ended the run have nothing left to do.
  if (!entry.ended.empty() && rank_ < 0 && !done && links_->thread() == 0) {
    throw RunHasEnded(
        fmt::format("the run on {} has ended after {} steps: its result is with the worker that led it. "
                    "For another run start the servers with another --dir",
                    entry.ended, progress_.steps));
  }
  evaluations_passed_ = run_.eval_every == 0 ? 0 : progress_.steps / run_.eval_every;

  const int rank = links_->rank();
  const bool fresh = rank != rank_;
  if (fresh) {
    MakeAlgorithm(rank, SeedOfLateStart(run_.seed, progress_.steps));
  } else if (actors_ != nullptr) {
    actors_->GoOn(links_->thread(), progress_.steps);
  }
  Resumed resumed = Resumed::kExactly;
  if (checkpoint && entry.boundary.empty()) {
    resumed = LoadAlgorithm(Held(*checkpoint), Origin(), run_, rank, *algorithm_);
    keeper_.SayWhenOpened(LoadOwn(*checkpoint, Origin(), run_, links_->store()));
  } else if (fresh && !entry.boundary.empty() && !entry.others_are_there) {
    resumed = Resumed::kNoExperience;  // that of the others is gone with them
  }
  LoadCommon(boundary);
  if (resumed == Resumed::kNoExperience) algorithm_->BeginWithoutExperience();
  return resumed;
}

void Worker::MakeAlgorithm(int rank, std::uint64_t seed) {
  const GradientGroup group = links_->gradient_group();
  const auto [first, count] = group.Own(run_.shards);
  rank_ = rank;
  algorithm_.reset();         // its memory first
  ledger_.WaitsFor(nullptr);  // before what it has counted is gone
  SentExperience* experience = nullptr;
  RemoteReplay* replay = nullptr;
  if (run_.on_replay_servers()) {
    replay = &actors_->BeginReplay(links_->thread(), rank, seed, count);
    ledger_.WaitsFor(&replay->received());
  } else if (actors_ != nullptr) {
    experience = &actors_->Begin(links_->thread(), rank, seed, progress_.steps);
    ledger_.WaitsFor(&experience->received());
  }
  algorithm_ = settings_.algorithm->Make({.env = settings_.env(),
                                          .executor = *executor_,
                                          .store = links_->store(),
                                          .seed = seed,
                                          .shards = run_.shards,
                                          .first_shard = group.index * run_.shards + first,
                                          .own_shards = count,
                                          .experience = experience,
                                          .replay = replay});
}

std::string Worker::Common() const {
  StateWriter common;
  algorithm_->SaveCommon(common);
  return std::move(common).Encode();
}

void Worker::LoadCommon(const Boundary& boundary) {
  if (boundary.common) algorithm_->LoadCommon(StateReader(*boundary.common));
}

void Worker::Run() {
  try {
    links_->MakeLoop(*this)->Run();
    if (PartOfLeaders()) whole_params_ = links_->share()->Whole(links_->store().params());
  } catch (const ServerLost& lost) {
    if (links_->thread() != 0 || folder_ == nullptr) throw;
    ledger_.KeepOwn();
    WriteCheckpoint();  // what this worker last saw of the parameters
    throw ServerLost(fmt::format("{}. What this worker had is in {}: continue with trireme train --resume {}",
                                 lost.what(), folder_->path().string(), folder_->path().string()));
  }
}

std::int64_t Worker::Iterate(MetricRow& row) {
  const double begun_s = MonotonicSeconds(), waited_s = ledger_.traffic().idle_s;
  const auto busy_s = [&] { return MonotonicSeconds() - begun_s - (ledger_.traffic().idle_s - waited_s); };
  const Staleness before = ledger_.received().lag;
  algorithm_->Iterate(static_cast<double>(progress_.steps) / static_cast<double>(run_.steps), row);
  if (options_.straggler.worker == links_->everyone().rank()) {
    std::this_thread::sleep_for(std::chrono::duration<double>((options_.straggler.factor - 1) * busy_s()));
  }
  ledger_.AddBusy(busy_s());
  if (run_.gradient_codec() != kNoCodec) {
    row.Set("bytes_saved", static_cast<double>(ledger_.bytes_saved()));
    row.Set("residual_norm", links_->store().ResidualNorm());
  }
  if (actors_ != nullptr) {
    const Staleness lag = ledger_.received().lag;
    row.Set("policy_lag",
            static_cast<double>(lag.sum - before.sum) / static_cast<double>(lag.count() - before.count()));
  }
  if (links_->share() != nullptr) ExpectSame(row);
  return algorithm_->steps_per_iteration();
}

bool Worker::EvaluationDue() {
  if (StepsDone() || progress_.eval_pending) return true;
  if (run_.eval_every == 0) return false;
  const std::int64_t before = std::exchange(evaluations_passed_, progress_.steps / run_.eval_every);
  return evaluations_passed_ > before;
}

void Worker::Evaluate(MetricRow& row) {
  const GradientGroup group = links_->gradient_group();
  const auto [first, count] = group.Own(run_.shards);
  EvaluationStop stop{.requested = [this] { return StopRequested(); },
                      .leads = links_->leads(),
                      .may_leave = links_->led_elsewhere()};
  if (const NetworkShare* share = links_->share()) {
    // They act together, so they stop together.
    stop.leads = PartOfLeaders();
    stop.requested = [this, share] {
      double requested = StopRequested();
      share->group().Broadcast(std::span(&requested, 1));
      return requested != 0;
    };
  }
  Record(evaluator_.Run(*algorithm_, group.comm, first, count, stop), row);
}

// Every worker that took part: whether the run is done follows from it.
void Worker::Record(const std::optional<Evaluation>& evaluation, MetricRow& row) {
  progress_.eval_pending = !evaluation;
  if (!evaluation) return;
  progress_.eval_mean = evaluation->mean;
  progress_.eval_std = evaluation->std;
  progress_.eval_cut_off = evaluation->cut_off;
  progress_.eval_steps = progress_.steps;
  row.Set("eval_return_mean", evaluation->mean);
  row.Set("eval_return_std", evaluation->std);
  if (evaluation->cut_off > 0) row.Set("eval_cut_off", evaluation->cut_off);
  std::optional<StateWriter> together;  // all members make it
  if (PartOfLeaders()) together = Policy();
  const auto policy = [&] { return together ? std::move(*together) : Policy(); };
  keeper_.Record(*evaluation, policy, ledger_.wall_s(), links_->leads(), progress_);
  if (!progress_.reached && run_.target && evaluation->mean >= *run_.target) {
    progress_.reached = true;
    progress_.time_to_target_s = ledger_.wall_s();
    progress_.steps_to_target = progress_.steps;
  }
}

void Worker::Report(const MetricRow& row) {
  if (progress_.eval_pending) {
    progress_.pending_row = row;
  } else {
    keeper_.Report(row, ledger_.wall_s(), progress_);
  }
}

Decision Worker::Decide(bool checkpoints_by_time) const {
  const bool stop = Done() || StopRequested();
  if (!stop && !(checkpoints_by_time && keeper_.CheckpointDue())) return {};
  return {.hand_in = keeper_.keeps_checkpoints() ? HandIn::kStates : HandIn::kAccounts, .stop = stop};
}

void Worker::ShowCommonParams() {
  ledger_.Aside([this] { links_->store().Refresh(); });
}

bool Worker::Gather(HandIn what) {
  ledger_.Gather();
  std::vector<std::string> states;
  if (what == HandIn::kStates) states = ledger_.GatherAside(State());
  StateWriter learned;
  if (what == HandIn::kStates && (links_->leads() || PartOfLeaders())) learned = Learned();
  if (!links_->leads()) return false;
  WriteCheckpointOf(std::move(states), std::move(learned));
  return true;
}

// Whether this worker computes its network together with the leader.
bool Worker::PartOfLeaders() const {
  return links_->share() != nullptr && links_->gradient_group().comm.rank() == 0;
}

// Of the whole network. All who hold a part of the leader's make it with it.
StateWriter Worker::Learned() const {
  StateWriter learned = LearnedState(run_, links_->store(), *algorithm_);
  if (links_->share() != nullptr) links_->share()->MakeWhole(learned);
  return learned;
}

StateWriter Worker::Policy() const {
  StateWriter policy;
  policy.PutLikeParams("params", links_->store().params());
  algorithm_->SaveCommon(policy);
  if (links_->share() != nullptr) links_->share()->MakeWhole(policy);
  return policy;
}

// What this worker reads of it: where it holds a part of the network, that part.
StateReader Worker::Held(const StateReader& checkpoint) const {
  return links_->share() == nullptr ? checkpoint : checkpoint.HeldAs(*links_->share());
}

// Members of a group step their own copies of the environments. Should these differ, what they compute together is of
// no use, and what they measured differs.
void Worker::ExpectSame(const MetricRow& row) {
  std::vector<double> measured;
  for (const auto& [name, value] : row.values()) measured.push_back(value);
  std::vector<double> first = measured;
  links_->share()->group().Broadcast(std::span<double>(first));
  if (std::memcmp(first.data(), measured.data(), measured.size() * sizeof(double)) == 0) return;
  Fail(
      "workers that compute one network together have had other experience: the environment {} is not "
      "reproducible, or "
      "one of its copies failed. Train it without model_parallel",
      run_.env);
}

// Empty where it is too large to be handed in: the checkpoint then holds no experience. Those that compute one network
// together have the same, and the first hands it in.
std::string Worker::State() {
  if (links_->share() != nullptr && links_->share()->member() != 0) return "";
  StateWriter own;
  SaveWorkerState(run_, rank_, links_->store(), *algorithm_, own);
  std::string state = std::move(own).Encode();
  if (state.size() <= links_->most_state()) return state;
  if (links_->leads() && !std::exchange(said_too_large_, true)) {
    options_.say(fmt::format(
        "checkpoints hold what was learned but no experience: that of a worker takes {}, and {} fit "
        "through a server. --store allreduce keeps it",
        FormatBytes(state.size()), FormatBytes(links_->most_state())));
  }
  return "";
}

void Worker::WriteCheckpointOf(std::vector<std::string> states, StateWriter&& learned) {
  SumAccounts();
  keeper_.WriteCheckpoint(std::move(states), std::move(learned), progress_);
}

}  // namespace trireme
