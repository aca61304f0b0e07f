#include "trireme/train/actor_process.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/algo/collecting.h"
#include "trireme/base/error.h"
#include "trireme/env/env.h"
#include "trireme/nn/make_executor.h"
#include "trireme/train/run_state.h"

namespace trireme {
namespace {

class ActorProcess {
 public:
  explicit ActorProcess(const ActorOptions& options) : options_(options) {}

  std::uint64_t Run() {
    std::vector<std::thread> threads;
    try {
      for (int i = 0; i < options_.actors; ++i) threads.emplace_back([this] { Act(); });
    } catch (const std::system_error& error) {
      Failed(std::make_exception_ptr(
          Error(fmt::format("cannot start {} actors: {}", options_.actors, error.code().message()))));
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    return sent_.load();
  }

 private:
  // Settings, and as long as anybody uses them whoever waits for their environments is told when it is to stop.
  struct Joined {
    std::unique_ptr<RunSettings> settings;
    std::unique_ptr<EnvStopScope> env_stop;
  };

  // What is told about a collector that has been made.
  struct Ready {
    std::string looks;
    std::size_t params = 0;
  };

  bool Stops() const { return ends_.load() || options_.learner.stop(); }

  void Failed(std::exception_ptr why) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
    ends_ = true;
  }

  void Act() {
    try {
      LearnerPlace place = options_.learner;
      place.stop = [this] { return Stops(); };
      RemoteActorEnd end(std::move(place));
      while (const auto welcome = end.Join()) Collect(end, *welcome);
      ends_ = true;  // what one has heard, that the run is over, is true for those who were just joining
    } catch (const std::exception&) {
      Failed(std::current_exception());
    }
  }

  void Collect(RemoteActorEnd& end, const RemoteActorEnd::Welcome& welcome) {
    const std::shared_ptr<const RunSettings> settings = SettingsOf(welcome.settings);
    const Network network(settings->algorithm->MakeNetwork(settings->env().spec));
    const int envs = settings->algorithm->TrajectorySize(settings->run.shards).envs;
    const ShardSpec shard{welcome.index, envs, welcome.seed};
    if (settings->run.central_inference()) {
      ElsewhereActing acting([&](const ActionRequest& request) {
        if (!end.Choose(request, shard.first_env(), settings->env().spec)) throw ChoicesEnd();
      });
      const Ready ready{LooksOf(*settings, network), 0};
      try {
        return Collect(end, ready, *settings, shard, acting);
      } catch (const ChoicesEnd&) {  // Join tells why
        return;
      }
    }
    const auto executor = MakeExecutor(network, settings->run.ComputingOf(welcome.index));
    const auto acting = settings->algorithm->MakeActing(settings->env().spec, *executor, envs);
    if (acting == nullptr) Fail("{} learns from no actors", settings->run.algo);
    Collect(end, {LooksOf(*settings, network), network.param_count()}, *settings, shard, *acting);
  }

  void Collect(RemoteActorEnd& end, const Ready& ready, const RunSettings& settings, const ShardSpec& shard,
               Acting& acting) {
    const int steps = settings.algorithm->TrajectorySize(settings.run.shards).steps;
    Collector collector(settings.env(), shard, steps, acting);
    end.Ready(ready.looks, ready.params);
    Trajectory trajectory;
    while (const std::shared_ptr<const PublishedPolicy> policy = end.Newest()) {
      collector.Collect(policy->params, trajectory);
      trajectory.policy = policy->version;
      if (!end.Send(trajectory)) return;
      ++sent_;
    }
  }

  // All actors of a run share one, and with it the processes that step environments.
  std::shared_ptr<const RunSettings> SettingsOf(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (settings_ != nullptr && text_ == text) return settings_;
    const auto joined = std::make_shared<Joined>();
    joined->settings = ParseRunSettings(text, "the settings of the learner");
    RunSettings* const settings = joined->settings.get();
    settings->Resolve();
    joined->env_stop = std::make_unique<EnvStopScope>(settings->env().processes, [this] { return Stops(); });
    options_.say(fmt::format("joined the learner at {}: {} with {}, {} actor{}", options_.learner.address,
                             settings->run.env_identity(), settings->run.algo, options_.actors,
                             options_.actors == 1 ? "" : "s"));
    text_ = text;
    settings_ = {joined, settings};
    return settings_;
  }

  const ActorOptions& options_;
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> sent_{0};
  std::mutex mutex_;  // guards:
  std::string text_;
  std::shared_ptr<const RunSettings> settings_;
  std::exception_ptr failure_;
};

}  // namespace

std::uint64_t RunActors(const ActorOptions& options) { return ActorProcess(options).Run(); }

std::string LooksOf(const RunSettings& settings, const Network& network) {
  const EnvSpec& env = settings.env().spec;
  return fmt::format("{} with observations of {} {}, {}{}, kept in {}, and network {}",
                     settings.run.env_identity(), fmt::join(env.obs.shape, " x "),
                     env.obs.type == ObsType::kUint8 ? "bytes" : "floats", env.action.Describe(),
                     env.masks ? " with masks" : "", NameOf(env.kept), DescribeNetwork(network.spec()));
}

}  // namespace trireme
