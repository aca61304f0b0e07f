// Environments for tests: what can differ from the built-in ones does, one thing at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/env/batch.h"
#include "trireme/env/registry.h"
#include "trireme/env/vec.h"

namespace trireme {

// Hands everything to another batch; the environments below change some of it.
class ForwardingBatch : public EnvBatch {
 public:
  explicit ForwardingBatch(std::unique_ptr<EnvBatch> inner, EnvSpec spec)
      : inner_(std::move(inner)), spec_(std::move(spec)) {}

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return inner_->size(); }
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    inner_->Reset(seed, purpose, first_id);
  }
  void StepBegin(std::span<const float> actions) override { inner_->StepBegin(actions); }
  void StepEnd() override { inner_->StepEnd(); }
  std::span<const std::byte> obs() const override { return inner_->obs(); }
  std::span<const std::byte> final_obs() const override { return inner_->final_obs(); }
  std::span<const std::uint8_t> masks() const override { return inner_->masks(); }
  std::span<const std::uint8_t> final_masks() const override { return inner_->final_masks(); }
  std::span<const float> rewards() const override { return inner_->rewards(); }
  std::span<const std::uint8_t> terminated() const override { return inner_->terminated(); }
  std::span<const std::uint8_t> truncated() const override { return inner_->truncated(); }
  std::span<const EpisodeEnd> finished() const override { return inner_->finished(); }
  EnvSnapshots* snapshots() override { return nullptr; }
  EnvPictures* pictures() override { return inner_->pictures(); }

 protected:
  std::unique_ptr<EnvBatch> inner_;
  EnvSpec spec_;
};

// CartPole under another name, stepped by a Batch derived from ForwardingBatch.
template <class Batch>
EnvEntry ForwardingEntry(const std::string& name, EnvFacts facts) {
  EnvSpec spec = FindEnv("CartPole-v1").spec;
  spec.name = name;
  return {.spec = spec, .facts = facts, .make = [spec](int size) {
            return std::make_unique<Batch>(FindEnv("CartPole-v1").make(size), spec);
          }};
}

// CartPole elsewhere: needs the argument `steps`, its time limit, takes any other, and has a host, which is alive
// while an entry is.
class HostedOptions final : public EnvOptions {
 public:
  using Host = EnvArgs;  // what it was started with
  static inline int started = 0;
  static inline std::weak_ptr<Host> last;

  explicit HostedOptions(const std::string& name) : name_("host:" + name) {}
  void Fields(ConfigFields& field) override { field("hosts", hosts_, "processes that step", AtLeast(1)); }
  bool takes_args() const override { return true; }
  EnvEntry Entry(const EnvArgs& args) const override {
    const auto steps = std::ranges::find(args, "steps", &EnvArg::key);
    if (steps == args.end()) Fail("{} needs --env-arg steps=N", name_);
    EnvSpec spec = FindEnv("CartPole-v1").spec;
    spec.name = name_;
    spec.help = fmt::format("{} hosts", hosts_);
    spec.max_episode_steps = static_cast<int>(std::get<std::int64_t>(steps->value));
    ++started;
    const auto host = std::make_shared<Host>(args);
    last = host;
    return {.spec = spec, .facts = {.reproducible = true}, .make = [spec, host](int size) {
              const std::pair<std::string, std::string> limit{"max_steps",
                                                              std::to_string(spec.max_episode_steps)};
              return std::make_unique<ForwardingBatch>(FindEnv("CartPole-v1", {&limit, 1}).make(size), spec);
            }};
  }

 private:
  std::string name_;
  int hosts_ = 1;
};
inline EnvSource HostedSource() {
  return {.prefix = "host:",
          .help = "CartPole elsewhere",
          .options = [](const std::string& name) { return std::make_unique<HostedOptions>(name); },
          .list =
              [] {
                return std::vector<EnvListing>{{"host:a", "first"}, {"host:b", "second"}};
              }};
}

// Can neither be saved nor reproduced: every Reset starts elsewhere.
class UnpredictableBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    static std::atomic<std::uint64_t> resets{0};
    inner_->Reset(seed + 1'000'003 * ++resets, purpose, first_id);
  }
};

// Steps in another thread, from StepBegin to StepEnd; before(n) is called there first, n = 0, 1, ...
class ThreadedBatch final : public ForwardingBatch {
 public:
  ThreadedBatch(std::unique_ptr<EnvBatch> inner, EnvSpec spec,
                std::function<void(int step)> before = TakeSomeTime)
      : ForwardingBatch(std::move(inner), std::move(spec)), before_(std::move(before)) {}
  ~ThreadedBatch() override {
    if (thread_.joinable()) thread_.join();
  }
  void StepBegin(std::span<const float> actions) override {
    thread_ = std::thread([this, own = std::vector<float>(actions.begin(), actions.end())] {
      before_(steps_++);
      inner_->Step(own);
    });
  }
  void StepEnd() override { thread_.join(); }
  EnvSnapshots* snapshots() override { return inner_->snapshots(); }

 private:
  // Up to 127 microseconds, never twice the same.
  static void TakeSomeTime(int) {
    static std::atomic<std::uint32_t> calls{0};
    std::this_thread::sleep_for(std::chrono::microseconds((calls++ * 2654435761u) >> 25));
  }

  std::function<void(int)> before_;
  int steps_ = 0;
  std::thread thread_;
};

// Where batches that step elsewhere meet in every step: none has made its own before all have begun it.
class Meeting {
 public:
  explicit Meeting(int batches) : batches_(batches) {}
  // In step 0, 1, ... of one of them. When the others do not come for a long time, nobody waits any more.
  void Wait(int step) {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    failed_ |= !changed_.wait_for(lock, std::chrono::minutes(1),
                                  [&] { return failed_ || begun_ >= (step + 1) * batches_; });
  }
  // Whether all have met in so many steps, and in no more.
  bool Met(int steps) {
    const std::lock_guard lock(mutex_);
    return !failed_ && begun_ == steps * batches_;
  }

 private:
  const int batches_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;        // guarded by mutex_: steps of all batches
  bool failed_ = false;  // guarded by mutex_
};

// The environment elsewhere, where its batches meet. The meeting outlives them.
inline EnvEntry MeetingEntry(EnvEntry env, Meeting& meeting) {
  env.facts.steps_elsewhere = true;
  env.make = [spec = env.spec, make = env.make, &meeting](int size) {
    return std::make_unique<ThreadedBatch>(make(size), spec, [&meeting](int step) { meeting.Wait(step); });
  };
  return env;
}

// A corridor of places 0 ... 4, entered in the middle. Choices: left, right, stay, and a fourth that ends the
// episode with -10. Where a wall is, nothing leads into it, and the fourth choice is allowed nowhere: who
// keeps to the masks can but learn that the right end pays 1 and the left one 0.1.
struct Corridor {
  static constexpr int kStateSize = 1;
  static constexpr int kObsSize = 2;
  static constexpr int kActionSize = 1;
  static constexpr int kChoices = 4;
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "TestCorridor-v0",
            .help = "walk to the right end; for tests of masks",
            .obs = {{kObsSize}},
            .action = ActionSpace::Discrete(kChoices),
            .masks = true,
            .max_episode_steps = 20,
            .reward_threshold = 20 - 1};
  }
  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    s[0] = 1.0 + static_cast<double>(random.NextBelow(3));
  }
  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    const Vec a = action[0];
    const Vec move = a == 0.0 ? Broadcast(-1.0) : (a == 1.0 ? Broadcast(1.0) : Broadcast(0.0));
    const Mask into_wall = (s[0] + move < 0.0) | (s[0] + move > 4.0);
    const Mask bad = into_wall | (a == 3.0);
    s[0] = Clamp(s[0] + move, 0.0, 4.0);
    const Vec pay = s[0] == 4.0 ? Broadcast(1.0) : (s[0] == 0.0 ? Broadcast(0.1) : Broadcast(0.0));
    return {.reward = bad ? Broadcast(-10.0) : pay, .terminated = bad};
  }
  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    obs[0] = (s[0] - 2.0) * 0.5;
    obs[1] = s[0] == 2.0 ? Broadcast(1.0) : Broadcast(0.0);
  }
  [[gnu::always_inline]] static void Allow(const State& s, Mask* allowed) {
    allowed[0] = s[0] > 0.0;
    allowed[1] = s[0] < 4.0;
    allowed[2] = s[0] > -1.0;
    allowed[3] = s[0] < -1.0;
  }
  // Five pixels, the one where it is white.
  static constexpr double kPicturesPerSecond = 10;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out) {
    out.Fill(5, 1, {});
    std::fill_n(out.rgb.begin() + 3 * static_cast<int>(s[0]), 3, 255);
  }
};

// Two dials, of 3 and 4 choices: the observation shows what each should be set to, and each that is pays 0.5.
struct Dials {
  static constexpr int kStateSize = 3;  // what the dials should show, and a count that makes the next two
  static constexpr int kObsSize = 7;    // one for each choice of each dial
  static constexpr int kActionSize = 2;
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "TestDials-v0",
            .help = "set two dials; for tests of actions with several parts",
            .obs = {{kObsSize}},
            .action = ActionSpace::MultiDiscrete({3, 4}),
            .max_episode_steps = 10,
            .reward_threshold = 10};
  }
  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    s = {static_cast<double>(random.NextBelow(3)), static_cast<double>(random.NextBelow(4)),
         static_cast<double>(random.NextBelow(12))};
  }
  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    const Vec first = action[0] == s[0] ? Broadcast(0.5) : Broadcast(0.0);
    const Vec second = action[1] == s[1] ? Broadcast(0.5) : Broadcast(0.0);
    s[2] = s[2] + 5.0 >= 12.0 ? s[2] - 7.0 : s[2] + 5.0;  // runs through 0 ... 11
    const Vec row = s[2] >= 8.0 ? Broadcast(2.0) : (s[2] >= 4.0 ? Broadcast(1.0) : Broadcast(0.0));
    s[0] = row;
    s[1] = s[2] - 4.0 * row;
    return {.reward = first + second, .terminated = Mask{}};
  }
  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    for (int k = 0; k < 3; ++k) obs[k] = s[0] == static_cast<double>(k) ? Broadcast(1.0) : Broadcast(0.0);
    for (int k = 0; k < 4; ++k) obs[3 + k] = s[1] == static_cast<double>(k) ? Broadcast(1.0) : Broadcast(0.0);
  }
};

// CartPole whose observations are bytes: 128 stands for 0.
class BytesBatch final : public ForwardingBatch {
 public:
  BytesBatch(std::unique_ptr<EnvBatch> inner, EnvSpec spec)
      : ForwardingBatch(std::move(inner), std::move(spec)),
        obs_(static_cast<std::size_t>(size()) * spec_.obs.size()),
        final_obs_(obs_.size()) {
    Convert();
  }
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    inner_->Reset(seed, purpose, first_id);
    Convert();
  }
  void StepEnd() override {
    inner_->StepEnd();
    Convert();
  }
  std::span<const std::byte> obs() const override { return obs_; }
  std::span<const std::byte> final_obs() const override { return final_obs_; }

 private:
  void Convert() {
    constexpr std::array<float, 4> kScale = {50, 40, 400, 40};
    const auto convert = [&](std::span<const float> from, std::vector<std::byte>& to) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        const float value = 128.0f + from[i] * kScale[i % 4];
        to[i] = static_cast<std::byte>(value < 0 ? 0 : value > 255 ? 255 : static_cast<int>(value));
      }
    };
    convert(FloatObs(inner_->obs()), obs_);
    convert(FloatObs(inner_->final_obs()), final_obs_);
  }
  std::vector<std::byte> obs_, final_obs_;
};

inline EnvEntry BytesEntry(const std::string& name) {
  EnvEntry entry = ForwardingEntry<BytesBatch>(name, {.snapshots = false, .reproducible = true});
  EnvSpec spec = entry.spec;
  spec.obs = {{2, 2}, ObsType::kUint8};
  return {.spec = spec, .facts = entry.facts, .make = [spec](int size) {
            return std::make_unique<BytesBatch>(FindEnv("CartPole-v1").make(size), spec);
          }};
}

}  // namespace trireme
