#include "trireme/train/actors.h"

#include <exception>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/nn/make_executor.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

Actors::Actors(const RunContext& context)
    : context_(context),
      per_worker_(context.settings.run.actors / context.settings.run.workers),
      groups_(context.settings.run.workers) {}

void Actors::End() {
  ending_.store(true);
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
  channel->End(why);
  if (schedule) schedule->Abort(why);
}

SentExperience& Actors::Begin(int thread, int rank, std::uint64_t seed) {
  const RunConfig& run = context_.settings.run;
  const int per_update = run.shards / run.total_workers();
  groups_[thread].reset();
  auto group = std::make_unique<Group>();
  group->channel = std::make_unique<MemoryChannel>(run.QueueOfWorker());
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
  return *groups_[thread]->experience;
}

void Actors::Act(Group& group, int index, std::uint64_t seed) {
  try {
    CollectAndSend(group, index, seed);
  } catch (const std::exception& error) {  // where the channel has ended before, nobody hears of it
    group.End(fmt::format("actor {}: {}", index, error.what()));
  }
}

void Actors::CollectAndSend(Group& group, int index, std::uint64_t seed) {
  const RunSettings& settings = context_.settings;
  std::unique_ptr<ActorEnd> end = group.channel->MakeActorEnd();
  if (group.schedule) end = MakeScheduledEnd(std::move(end), *group.schedule, index % per_worker_);
  const auto executor = MakeExecutor(context_.network, settings.run.ComputingOf(index));
  const auto collector = settings.algorithm->MakeCollector({.env = settings.env(),
                                                            .executor = *executor,
                                                            .seed = seed,
                                                            .shards = settings.run.shards,
                                                            .index = index});
  if (collector == nullptr) Fail("{} says that it learns from actors and makes none", settings.run.algo);
  Trajectory trajectory;
  while (const std::shared_ptr<const PublishedPolicy> policy = end->Newest()) {
    collector->Collect(policy->params, trajectory);
    trajectory.policy = policy->version;
    if (!end->Send(trajectory)) return;
  }
}

}  // namespace trireme
