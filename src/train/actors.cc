#include "trireme/train/actors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>

#include "trireme/algo/collecting.h"
#include "trireme/base/error.h"
#include "trireme/nn/make_executor.h"
#include "trireme/rpc/transport.h"
#include "trireme/train/actor_process.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

// Seconds without experience after which a run that is to stop does so in the middle of an iteration, if nobody collects or if
// somebody does; after which people are told that nobody does; and after which a run ends whose actors send no choices any more.
constexpr double kStopAlone = 2, kStopPatience = 60, kTellPatience = 5, kNoChoices = 5;

}  // namespace

Actors::Actors(const RunContext& context)
    : context_(context),
      per_worker_(context.settings.run.actors / context.settings.run.workers),
      groups_(context.settings.run.workers) {
  if (!context.settings.run.listen.empty() || context.settings.run.on_replay_servers()) CheckMessages();
  if (context.settings.run.central_inference()) inference_.emplace(context_);
  if (!context.settings.run.listen.empty()) Listen();
}

void Actors::CheckMessages() const {
  const RunConfig& run = context_.settings.run;
  const EnvSpec& env = context_.settings.env().spec;
  const auto [steps, envs] = context_.settings.algorithm->TrajectorySize(run.shards);
  std::size_t longest = std::max(TrajectoryShape{env, steps, envs}.most_bytes(),
                                 sizeof(PolicyHeader) + context_.network.param_count() * sizeof(float));
  if (run.on_replay_servers()) {
    const auto servers = static_cast<int>(ReplayServers().size());
    const auto what = *context_.settings.algorithm->RemembersElsewhere(run.shards, servers);
    if (what.rules.capacity == 0)
      Fail("replay is smaller than the number of replay servers, {}: make it larger", servers);
    longest = std::max(
        longest, AnswerBytes(1, what.part, ReplayBuffer::RecordSize(RowLayout(env), env.action.size())));
  }
  if (longest > Limits().message) {
    Fail(
        "a trajectory, a policy or a draw of this run may have {} bytes, and a message {}: reduce horizon, "
        "envs, batch "
        "or hidden, or leave out {}",
        longest, Limits().message, run.on_replay_servers() ? "--replay" : "--listen");
  }
}

void Actors::Listen() {
  const RunConfig& run = context_.settings.run;
  const TrainOptions& options = context_.options;
  const auto [steps, envs] = context_.settings.algorithm->TrajectorySize(run.shards);
  const TrajectoryShape shape{context_.settings.env().spec, steps, envs};
  service_ = std::make_unique<ActorService>(
      TransportFor(run.listen).Listen(run.listen, options.security),
      ActorDesk::Terms{.version = options.version,
                       .settings = context_.settings.fields.ToToml(),
                       .looks = LooksOf(context_.settings, context_.network),
                       .shape = shape,
                       .own_actors = run.total_workers() * per_worker_,
                       .learners = run.total_workers(),
                       .inference = inference_ ? &inference_->service() : nullptr},
      run.workers, options.say);
  options.say(fmt::format("actors join with: trireme actor --learner {}", service_->address()));
  if (options.security.token.empty() && !OnThisMachineOnly(service_->address()))
    options.say("no --token-file: whoever reaches this address can take part in the run");
}

void Actors::GiveUp(double waited_s) {
  GiveUp(waited_s, per_worker_ == 0 && (service_ == nullptr || service_->desk().actors() == 0));
}

void Actors::GiveUp(double waited_s, bool nobody) {
  const TrainOptions& options = context_.options;
  if (worker_failed_.load()) Fail("another worker failed");
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.empty()) Fail("{}", failure_);
  }
  if (service_ != nullptr && std::min(waited_s, service_->desk().SecondsWithoutChoices()) > kNoChoices) {
    Fail(
        "training diverged, or all actors are out of order: for {:g} seconds nothing has come but "
        "trajectories whose probabilities or actions are not finite. Try a smaller learning_rate.",
        kNoChoices);
  }
  if (options.stop != nullptr && options.stop->load() && waited_s > (nobody ? kStopAlone : kStopPatience)) {
    Fail(
        "stopped while it waited for actors, in the middle of an iteration: what was learned since the last "
        "checkpoint, if there is one, is lost");
  }
  if (waited_s < kTellPatience) waits_.store(false);
  if (service_ != nullptr && nobody && waited_s > kTellPatience && !waits_.exchange(true))
    options.say(fmt::format("no experience comes: actors join with: trireme actor --learner {}",
                            service_->address()));
}

void Actors::End(bool over) {
  ending_.store(true);
  if (inference_) inference_->service().End();  // it answers nobody any more, who may then end
  const Deadline begun = Clock::now();
  for (const auto& group : groups_) {
    if (over && group != nullptr && group->replay != nullptr) group->replay->EndRun(begun);
  }
  for (std::thread& thread : of_servers_) thread.join();
  of_servers_.clear();
  if (service_ != nullptr) service_->End(over);
  for (const auto& group : groups_) {
    if (group) group->End("the run has ended");
  }
  for (auto& group : groups_) group.reset();
}

Actors::Group::~Group() {
  End("the run has ended");
  for (std::thread& thread : threads) thread.join();
}

void Actors::Group::End(const std::string& why) {
  if (channel != nullptr) channel->End(why);
  if (schedule) schedule->Abort(why);
}

SentExperience& Actors::Begin(int thread, int rank, std::uint64_t seed, std::int64_t steps) {
  const RunConfig& run = context_.settings.run;
  const int per_update = run.shards / run.total_workers();
  if (service_ != nullptr) service_->desk().Detach(thread);
  if (inference_ && groups_[thread]) inference_->service().Detach(*groups_[thread]->channel);
  groups_[thread].reset();
  auto group = std::make_unique<Group>();
  group->channel =
      std::make_unique<MemoryChannel>(run.QueueOfWorker(), [this](double waited_s) { GiveUp(waited_s); });
  if (!run.schedule.empty()) group->schedule.emplace(run.schedule, per_worker_ + 1);
  group->experience = std::make_unique<SentExperience>(
      group->channel->MakeLearnerEnd(), per_update, static_cast<std::uint64_t>(run.max_lag),
      SentExperience::Order{group->schedule ? &*group->schedule : nullptr, per_worker_});
  try {
    for (int i = 0; i < per_worker_; ++i) {
      const int index = rank * per_worker_ + i;
      group->threads.emplace_back([this, &group = *group, index, seed] { Act(group, index, seed); });
    }
  } catch (const std::system_error& error) {
    Fail("cannot start {} actors: {}", run.actors, error.code().message());
  }
  groups_[thread] = std::move(group);
  GoOn(thread, steps);
  if (inference_) inference_->service().Attach(*groups_[thread]->channel);
  if (service_ != nullptr) service_->desk().Attach(thread, *groups_[thread]->channel, rank, seed);
  return *groups_[thread]->experience;
}

void Actors::GoOn(int thread, std::int64_t steps) {
  const int shards = context_.settings.run.shards;
  const auto trajectory = context_.settings.algorithm->TrajectorySize(shards);
  const std::int64_t of_update = std::int64_t{shards} * trajectory.steps * trajectory.envs;
  TRIREME_CHECK(of_update > 0);
  SentExperience* const experience = groups_[thread]->experience.get();
  if (experience != nullptr) experience->CountFrom(static_cast<std::uint64_t>(steps / of_update));
}

std::vector<std::string> Actors::ReplayServers() const {
  return AddressList("replay_servers", context_.settings.run.replay_servers);
}

RemoteReplay& Actors::BeginReplay(int thread, int rank, std::uint64_t seed, int draws) {
  const RunSettings& settings = context_.settings;
  const RunConfig& run = settings.run;
  const TrainOptions& options = context_.options;
  const std::vector<std::string> servers = ReplayServers();
  const auto count = static_cast<int>(servers.size());
  const auto what = *settings.algorithm->RemembersElsewhere(run.shards, count);
  const auto [steps, envs] = settings.algorithm->TrajectorySize(run.shards);
  RateLimiter::Rules rate{.draws_per_insert = what.draws_per_insert, .least = what.least / count, .slack = 0};
  rate.slack = std::max(rate.LeastSlack(static_cast<double>(steps) * envs, static_cast<double>(what.part)),
                        run.replay_slack * what.round / count);
  groups_[thread].reset();
  auto group = std::make_unique<Group>();
  group->replay = std::make_unique<RemoteReplay>(
      RemoteReplay::Options{
          .servers = servers,
          .security = options.security,
          .version = options.version,
          .wait_s = run.server.wait_s,
          .ahead = draws + 1,
          .give_up = [this](double waited_s, bool collected) { GiveUp(waited_s, !collected); },
          .say = options.say},
      ReplayRun{.id = context_.run_id,
                .looks = LooksOf(settings, context_.network),
                .shape = {settings.env().spec, steps, envs},
                .rules = what.rules,
                .rate = rate,
                .part = what.part,
                .settings = settings.fields.ToToml(),
                .params = context_.network.param_count(),
                .seed = seed,
                .learner = static_cast<std::uint32_t>(rank)});
  groups_[thread] = std::move(group);
  std::call_once(joined_servers_, [&] { JoinServers(rank / run.workers); });
  return *groups_[thread]->replay;
}

std::vector<int> ActorsOfServers(int process, int actors, int servers) {
  std::vector<int> of_server(static_cast<std::size_t>(servers));
  const std::int64_t first = std::int64_t{process} * actors;
  for (std::int64_t actor = first; actor < first + actors; ++actor) ++of_server[actor % servers];
  return of_server;
}

void Actors::JoinServers(int process) {
  const std::vector<std::string> servers = ReplayServers();
  const TrainOptions& options = context_.options;
  const int actors = context_.settings.run.actors, count = static_cast<int>(servers.size());
  const int all = actors * context_.settings.run.processes;
  if (process == 0 && all > 0 && all < count) {
    options.say(
        fmt::format("{} actor{} for {} replay servers: nothing comes from {} until others join them, and "
                    "those that have actors are drawn from alone",
                    all, all == 1 ? "" : "s", count, fmt::join(servers.begin() + all, servers.end(), ", ")));
  }
  const std::vector<int> of_server = ActorsOfServers(process, actors, count);
  // How long to wait for servers is the learner's business: while it goes on, so do its actors.
  constexpr double kAsLongAsTheRun = std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    if (of_server[i] == 0) continue;
    const ActorOptions actor{.learner = {.transport = &TransportFor(servers[i]),
                                         .address = servers[i],
                                         .security = options.security,
                                         .version = options.version,
                                         .run = context_.run_id,
                                         .wait_s = kAsLongAsTheRun,
                                         .stop = [this] { return ending(); }},
                             .actors = of_server[i]};
    of_servers_.emplace_back([this, actor] {
      try {
        RunActors(actor);
      } catch (const std::exception& error) {
        const std::lock_guard lock(failure_mutex_);
        if (failure_.empty()) failure_ = fmt::format("an actor: {}", error.what());
      }
    });
  }
}

void Actors::Act(Group& group, int index, std::uint64_t seed) {
  try {
    CollectAndSend(group, index, seed);
  } catch (const ChoicesEnd&) {
  } catch (const std::exception& error) {  // where the channel has ended before, nobody hears of it
    group.End(fmt::format("actor {}: {}", index, error.what()));
  }
}

void Actors::CollectAndSend(Group& group, int index, std::uint64_t seed) {
  const RunSettings& settings = context_.settings;
  std::unique_ptr<ActorEnd> end = group.channel->MakeActorEnd();
  if (group.schedule) end = MakeScheduledEnd(std::move(end), *group.schedule, index % per_worker_);
  const int envs = settings.algorithm->TrajectorySize(settings.run.shards).envs;
  if (inference_) {
    CentralInference::Member asks(inference_->service());
    ElsewhereActing acting([&](const ActionRequest& request) {
      if (!asks.Choose(request)) throw ChoicesEnd();
    });
    return CollectAndSend(*end, {index, envs, seed}, acting, &asks);
  }
  const auto executor = MakeExecutor(context_.network, settings.run.ComputingOf(index));
  const auto acting = settings.algorithm->MakeActing(settings.env().spec, *executor, envs);
  if (acting == nullptr) Fail("{} says that it learns from actors and has none", settings.run.algo);
  CollectAndSend(*end, {index, envs, seed}, *acting, nullptr);
}

void Actors::CollectAndSend(ActorEnd& end, const ShardSpec& shard, Acting& acting,
                            CentralInference::Member* asks) {
  const RunSettings& settings = context_.settings;
  const int steps = settings.algorithm->TrajectorySize(settings.run.shards).steps;
  Collector collector(settings.env(), shard, steps, acting);
  Trajectory trajectory;
  while (const std::shared_ptr<const PublishedPolicy> policy = end.Newest()) {
    if (asks != nullptr) asks->Come();
    collector.Collect(policy->params, trajectory);
    if (asks != nullptr) asks->Go();
    trajectory.policy = policy->version;
    if (!end.Send(trajectory)) return;
  }
}

}  // namespace trireme
