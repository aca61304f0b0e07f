#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/plugin.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/experience/actor_service.h"
#include "trireme/experience/remote_actor.h"
#include "trireme/nn/network.h"
#include "trireme/plan/actors.h"
#include "trireme/plan/runs.h"
#include "trireme/train/actor_process.h"

namespace trireme {
namespace {

constexpr int kFeeders = 2;  // each with kWindow trajectories on their way
constexpr int kWarmUp = 3;   // trajectories: memory and kernels are made
constexpr int kFewest = 4;   // trajectories, or rows of metrics, to measure by
constexpr std::int64_t kEndless = 1'000'000'000'000;

double SecondsOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds in which the calling thread could have gone on and waited for a processor, since it began: what it would not on a host
// of its own. 0 where the system does not say.
double WaitedForProcessor() {
  std::ifstream in("/proc/thread-self/schedstat");
  double ran_ns = 0, waited_ns = 0;
  return in >> ran_ns >> waited_ns ? 1e-9 * waited_ns : 0;
}

LearnerPlace PlaceAt(const std::string& address, std::function<bool()> stop) {
  return {
      .transport = &TransportFor(address), .address = address, .version = Version(), .stop = std::move(stop)};
}

// A learner that takes everything and learns nothing: it counts, keeps the last trajectories, and publishes the same parameters
// as often as one that learns.
class Taker final : public TrajectorySink {
 public:
  Taker(std::vector<float> params, int per_update) : params_(std::move(params)), per_update_(per_update) {
    Publish();
  }

  bool Offer(Trajectory& trajectory) override {
    const std::lock_guard lock(mutex_);
    // What this thread does, a learner does elsewhere.
    now_ = {now_.taken + 1, MonotonicSeconds() - waited_s_.load(), CpuSeconds() - SecondsOfThread()};
    if (now_.taken == kWarmUp) {
      begun_ = now_;
      begun_s_ = MonotonicSeconds();
    }
    std::swap(kept_[static_cast<std::size_t>(now_.taken % kFeeders)], trajectory);
    if (now_.taken % per_update_ == 0) Publish();
    return true;
  }
  std::shared_ptr<const PublishedPolicy> newest() const override {
    const std::lock_guard lock(mutex_);
    return newest_;
  }
  // Asked by the actor, all the time.
  bool HasSeen(double seconds) {
    waited_s_ = WaitedForProcessor();
    const std::lock_guard lock(mutex_);
    return now_.taken >= kWarmUp + kFewest && MonotonicSeconds() > begun_s_ + seconds;
  }
  // After that, when nobody sends any more.
  double TrajectoriesPerSecond() const { return (now_.taken - begun_.taken) / (now_.wall_s - begun_.wall_s); }
  double Processors() const { return (now_.cpu_s - begun_.cpu_s) / (now_.wall_s - begun_.wall_s); }
  std::array<Trajectory, kFeeders>& kept() { return kept_; }

 private:
  struct Moment {
    int taken = 0;
    double wall_s = 0, cpu_s = 0;  // without what the actor has waited for a processor
  };
  void Publish() {
    newest_ = std::make_shared<const PublishedPolicy>(
        PublishedPolicy{newest_ == nullptr ? 1 : newest_->version + 1, params_});
  }

  const std::vector<float> params_;
  const int per_update_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const PublishedPolicy> newest_;
  std::array<Trajectory, kFeeders> kept_;
  Moment begun_, now_;
  double begun_s_ = 0;
  std::atomic<double> waited_s_{0};  // by the actor
};

// Actors who have nothing to do but to send what was collected before.
class Feeders {
 public:
  Feeders(const std::string& address, const std::string& looks, std::size_t params,
          std::array<Trajectory, kFeeders>& trajectories, const std::atomic<bool>& stop,
          std::atomic<bool>& enough)
      : enough_(enough) {
    for (Trajectory& trajectory : trajectories) {
      threads_.emplace_back([this, address, looks, params, &trajectory, &stop] {
        try {
          Feed(address, looks, params, trajectory, stop);
        } catch (const std::exception&) {
          const std::lock_guard lock(mutex_);
          failure_ = std::current_exception();
          enough_ = true;
        }
      });
    }
  }
  ~Feeders() { End(); }
  Feeders(const Feeders&) = delete;
  Feeders& operator=(const Feeders&) = delete;

  void End() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // After End.
  void ThrowFailure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void Feed(const std::string& address, const std::string& looks, std::size_t params, Trajectory& trajectory,
            const std::atomic<bool>& stop) {
    RemoteActorEnd end(PlaceAt(address, [&] {
      if (stop) enough_ = true;  // the learner goes on until then, and needs somebody who sends
      return ended_.load();
    }));
    if (!end.Join()) return;
    end.Ready(looks, params);
    while (const auto policy = end.Newest()) {
      trajectory.policy = policy->version;
      if (!end.Send(trajectory)) return;
    }
  }

  std::atomic<bool>& enough_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // guards:
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

// How fast a learner is, from its first update on, until that is known.
struct Watch final : SilentObserver {
  Watch(double seconds, std::atomic<bool>& enough) : seconds(seconds), enough(enough) {}

  void OnRow(const MetricRow& row) override {
    if (row.Get("updates") == 0) return;  // it only remembers as yet
    const double now_s = MonotonicSeconds();
    const double waited_s = WaitedForProcessor();  // this is the learner's thread
    if (rows++ == 0) {
      begun_s = now_s;
      begun_waited_s = waited_s;
      first = row.step();
      return;
    }
    const double learned_s = now_s - begun_s - (waited_s - begun_waited_s);
    steps_per_s = static_cast<double>(row.step() - first) / std::max(learned_s, 1e-9);
    if (rows > kFewest && now_s > begun_s + seconds) enough = true;
  }

  const double seconds;
  std::atomic<bool>& enough;
  int rows = 0;
  std::int64_t first = 0;
  double begun_s = 0, begun_waited_s = 0, steps_per_s = kUnknown;
};

double MeasureLearner(RunSettings& settings, const std::string& looks, std::size_t params, Taker& taker,
                      double seconds, const std::atomic<bool>& stop) {
  RunConfig& run = settings.run;
  run.stop_at_target = false;
  run.steps = kEndless;
  LeaveOutAllButTraining(run);
  std::atomic<bool> enough{false};
  Watch watch(seconds, enough);
  Feeders feeders(run.listen, looks, params, taker.kept(), stop, enough);
  try {
    Train(settings, watch, {.stop = &enough, .server_program = "/proc/self/exe"});
  } catch (const Error&) {
    feeders.End();
    feeders.ThrowFailure();  // it is why
    throw;
  }
  feeders.End();
  feeders.ThrowFailure();
  return watch.steps_per_s;
}

}  // namespace

ActorConstants MeasureActors(const MakeActorSettings& make_settings, double seconds,
                             const std::atomic<bool>& stop) {
  const ScratchFolder scratch;
  const std::string address =
      (HavePlugin("libtrireme_grpc.so") ? "unix:" : "shm:") + (scratch.path() / "learner").string();
  const auto settings = make_settings(address);
  const RunConfig& run = settings->run;
  const Network network(settings->algorithm->MakeNetwork(settings->env().spec));
  const auto [steps, envs] = settings->algorithm->TrajectorySize(run.shards);
  const std::string looks = LooksOf(*settings, network);
  std::vector<float> params(network.param_count());
  network.Initialise(run.seed, params);

  Taker taker(params, run.shards);
  {
    ActorService service(TransportFor(address).Listen(address, {}),
                         {.version = Version(),
                          .settings = settings->fields.ToToml(),
                          .looks = looks,
                          .shape = {settings->env().spec, steps, envs}},
                         1, [](const std::string&) {});
    service.desk().Attach(0, taker, 0, run.seed);
    RunActors({.learner = PlaceAt(address, [&] { return stop || taker.HasSeen(seconds / 2); })});
  }
  if (stop) Fail("interrupted");
  ActorConstants c{.env = run.env_identity(),
                   .algo = run.algo,
                   .variant = VariantOf(run),
                   .actor_steps_per_s = taker.TrajectoriesPerSecond() * steps * envs,
                   .actor_processors = taker.Processors(),
                   .trajectory_steps = static_cast<double>(steps) * envs,
                   .trajectory_bytes = static_cast<double>(EncodeTrajectory(taker.kept()[0], 1)->size()),
                   .policy_bytes = static_cast<double>(EncodePolicy(1, params)->size()),
                   .trajectories_per_update = static_cast<double>(run.shards),
                   .origins = {{"network_", "assumed"}}};
  c.learner_steps_per_s = MeasureLearner(*settings, looks, network.param_count(), taker, seconds / 2, stop);
  if (stop) Fail("interrupted");
  return c;
}

}  // namespace trireme
