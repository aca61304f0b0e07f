#include "trireme/env/plugin/plugin_batch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/base/text.h"
#include "trireme/env/plugin/option_pointers.h"
#include "trireme/env/plugin/step_checks.h"

namespace trireme {
namespace {

constexpr std::uint64_t kStepsFromNothing = 4;    // in which rows hold nothing before they are written
constexpr std::uint64_t kMostState = 1ull << 36;  // bytes that a batch can want to save
constexpr std::size_t kStateGuard = 64;           // bytes behind them
constexpr std::byte kGuardByte{0xA5};

}  // namespace

EnvEntry PluginEntry(const trireme_env& env, const EnvArgs& args, const std::string& name,
                     std::optional<int> max_steps) {
  auto made = std::make_shared<PluginEnv>(env, args, name);
  if (max_steps) made->facts.spec.max_episode_steps = *max_steps;
  const PluginFacts& facts = made->facts;
  return {.spec = facts.spec,
          .facts = {.snapshots = facts.snapshots, .reproducible = facts.reproducible},
          .make = [shared = std::shared_ptr<const PluginEnv>(std::move(made))](int size) {
            return std::make_unique<PluginBatch>(shared, size);
          }};
}

void PluginBatch::Destroy::operator()(void* batch) const {
  const PluginCall call(env->facts.spec.name.c_str(), "destroy");
  env->table.destroy(batch);
}

PluginBatch::PluginBatch(std::shared_ptr<const PluginEnv> env, int size)
    : env_(std::move(env)),
      size_(static_cast<std::size_t>(size)),
      obs_bytes_(spec().obs.bytes()),
      mask_bytes_(spec().masks ? static_cast<std::size_t>(spec().action.choices()) : 0),
      obs_floats_(spec().obs.type == ObsType::kFloat32 ? static_cast<std::size_t>(spec().obs.size()) : 0),
      buffers_(spec(), size_),
      final_obs_(size_ * obs_bytes_),
      final_masks_(size_ * mask_bytes_),
      returns_(size_),
      elapsed_(size_),
      episode_(size_),
      starting_(size_),
      streams_(size_),
      batch_(nullptr, Destroy{env_.get()}) {
  TRIREME_CHECK(size > 0);
  finished_.reserve(size_);
  for (trireme_random& stream : streams_) stream.used = 4;
  void* made = nullptr;
  CallPlugin(name(), "create", [&] {
    return env_->table.create(env_->values.data(), static_cast<std::uint32_t>(size_), &made);
  });
  if (made == nullptr) Fail("{} failed in create: it made no batch and gave no error", name());
  batch_.reset(made);
  Reset(0, Purpose::kTest, 0);
}

void PluginBatch::Refuse(const char* function, const std::string& what) const {
  Fail(
      "{} breaks the rules in {}{}: {}. That is a mistake in the plug-in; `trireme envs {} --check` looks "
      "for more",
      name(), function, steps_ == 0 ? "" : fmt::format(" {}", steps_), what, name());
}

void PluginBatch::CheckGuards(const char* function) const {
  if (const char* damaged = buffers_.Damage(); damaged != nullptr) {
    Refuse(function, fmt::format("it has written beside the {} of its {} copies", damaged, size_));
  }
}

void PluginBatch::CheckObs(std::size_t i, const char* function) const {
  if (obs_floats_ == 0) return;
  const float* row = static_cast<const float*>(buffers_.view().obs) + i * obs_floats_;
  if (!FinishStep::NotFinite(row, obs_floats_)) return;
  const float* bad = std::find_if(row, row + obs_floats_, [](float value) { return !std::isfinite(value); });
  Refuse(function, fmt::format("number {} of the observation of copy {} is {}, or was not written", bad - row,
                               i, *bad));
}

void PluginBatch::CheckMask(std::size_t i, const char* function) const {
  if (mask_bytes_ == 0) return;
  const std::uint8_t* mask = buffers_.view().masks + i * mask_bytes_;
  for (const int choices : spec().action.parts) {
    std::uint8_t all = 0;
    for (int k = 0; k < choices; ++k) all |= mask[k];
    if (all > 1)
      Refuse(function, fmt::format("the mask of copy {} is not made of 0 and 1, or was not written", i));
    if (all == 0) Refuse(function, fmt::format("the mask of copy {} allows none of {} choices", i, choices));
    mask += choices;
  }
}

void PluginBatch::RefuseStep() const {
  for (std::size_t i = 0; i < size_; ++i) {
    CheckObs(i, "step");
    if (const float reward = rewards()[i]; !std::isfinite(reward)) {
      Refuse("step", fmt::format("the reward of copy {} is {}", i, reward));
    }
    const int terminated = this->terminated()[i], truncated = this->truncated()[i];
    if (terminated > 1 || truncated > 1 || terminated + truncated > 1) {
      Refuse("step",
             fmt::format(
                 "the flags of copy {} are terminated {}, truncated {}, where 0 and 1 are allowed, and 1 "
                 "for one of them",
                 i, terminated, truncated));
    }
  }
  Fail("{}: what was wrong in a step has gone: another thread writes to its buffers", name());
}

void PluginBatch::Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) {
  seed_ = seed;
  purpose_ = purpose;
  first_id_ = first_id;
  steps_ = 0;
  std::ranges::fill(episode_, 0);
  std::ranges::fill(final_obs_, std::byte{0});
  std::ranges::fill(final_masks_, 0);
  finished_.clear();
  buffers_.ForgetRows(spec().obs.type);
  buffers_.ClearStep();
  for (std::size_t i = 0; i < size_; ++i) StartNext(i);
  ResetStarting();
}

void PluginBatch::StartNext(std::size_t i) {
  const auto copy = static_cast<std::uint32_t>(i);
  trireme_random& stream = streams_[starting_count_];
  stream.key = seed_;
  std::ranges::copy(StreamCounter(purpose_, first_id_ + copy, episode_[i], 0), stream.counter);
  starting_[starting_count_++] = copy;
  elapsed_[i] = 0;
  returns_[i] = 0;
}

void PluginBatch::ResetStarting() {
  const std::uint32_t count = std::exchange(starting_count_, 0);
  trireme_buffers to = buffers_.view();
  to.rewards = nullptr;
  to.terminated = to.truncated = nullptr;
  CallPlugin(name(), "reset",
             [&] { return env_->table.reset(batch_.get(), count, starting_.data(), streams_.data(), &to); });
  CheckGuards("reset");
  for (const std::uint32_t i : std::span(starting_).first(count)) {
    CheckObs(i, "reset");
    CheckMask(i, "reset");
  }
}

void PluginBatch::StepBegin(std::span<const float> actions) {
  TRIREME_CHECK(actions.size() == size_ * static_cast<std::size_t>(spec().action.size()));
  buffers_.ClearStep();
  static const char first_step = 0;
  if (steps_ == 0) TellExits(&first_step);
  if (++steps_ <= kStepsFromNothing) buffers_.ForgetRows(spec().obs.type);
  CallPlugin(name(), "step",
             [&] { return env_->table.step(batch_.get(), actions.data(), &buffers_.view()); });
  CheckGuards("step");
  const StepResults results{.obs = static_cast<const float*>(buffers_.view().obs),
                            .obs_count = size_ * obs_floats_,
                            .rewards = buffers_.view().rewards,
                            .returns = returns_.data(),
                            .elapsed = elapsed_.data(),
                            .terminated = buffers_.view().terminated,
                            .truncated = buffers_.view().truncated};
  const StepFindings found = SimdCall<FinishStep>(&results, size_, spec().max_episode_steps);
  if (found.not_finite || found.bad_flags) RefuseStep();
  for (std::size_t i = 0; mask_bytes_ > 0 && i < size_; ++i) CheckMask(i, "step");
  finished_.clear();
  if (found.ended) FinishEpisodes();
}

void PluginBatch::FinishEpisodes() {
  const trireme_buffers& from = buffers_.view();
  const auto* const obs = static_cast<const std::byte*>(from.obs);
  const auto finish = [&](std::size_t i) {
    finished_.push_back({.env = static_cast<int>(i),
                         .length = elapsed_[i],
                         .episode_return = returns_[i],
                         .terminated = from.terminated[i] != 0});
    std::copy_n(obs + i * obs_bytes_, obs_bytes_, final_obs_.data() + i * obs_bytes_);
    if (mask_bytes_ > 0) {
      std::copy_n(from.masks + i * mask_bytes_, mask_bytes_, final_masks_.data() + i * mask_bytes_);
    }
    ++episode_[i];
    StartNext(i);
  };
  static_assert(std::endian::native == std::endian::little);
  std::size_t i = 0;
  for (; i + 8 <= size_; i += 8) {  // eight flags at a time
    std::uint64_t terminated, truncated;
    std::memcpy(&terminated, from.terminated + i, 8);
    std::memcpy(&truncated, from.truncated + i, 8);
    for (std::uint64_t done = terminated | truncated; done != 0; done &= done - 1) {
      finish(i + static_cast<std::size_t>(std::countr_zero(done)) / 8);
    }
  }
  for (; i < size_; ++i) {
    if ((from.terminated[i] | from.truncated[i]) != 0) finish(i);
  }
  ResetStarting();
}

void PluginBatch::Save(StateWriter& out, const std::string& scope) const {
  std::uint64_t bytes = 0;
  CallPlugin(name(), "state_bytes", [&]() -> const char* {
    bytes = env_->table.state_bytes(batch_.get());
    return nullptr;
  });
  if (bytes > kMostState)
    Refuse("state_bytes", fmt::format("{} copies have {} bytes of state", size_, bytes));
  std::vector<std::byte> state(bytes + kStateGuard);
  std::fill(state.end() - kStateGuard, state.end(), kGuardByte);
  CallPlugin(name(), "save", [&] { return env_->table.save(batch_.get(), state.data()); });
  if (std::any_of(state.end() - kStateGuard, state.end(), [](std::byte b) { return b != kGuardByte; })) {
    Refuse("save", fmt::format("it has written more than the {} bytes that state_bytes says", bytes));
  }
  out.PutText(scope + "/name", env_->table.name);
  out.PutValue<std::uint64_t>(scope + "/size", size_);
  out.PutValue<std::uint64_t>(scope + "/seed", seed_);
  out.PutValue<std::uint32_t>(scope + "/purpose", static_cast<std::uint32_t>(purpose_));
  out.PutValue<std::uint32_t>(scope + "/first_id", first_id_);
  out.Put<std::byte>(scope + "/state", std::span(state).first(bytes));
  out.Put<OptionPointer>(scope + "/option_pointers",
                         FindOptionPointers(env_->values.all(), std::span(state).first(bytes)));
  out.Put<std::byte>(scope + "/obs", obs());
  out.Put<std::uint8_t>(scope + "/masks", masks());
  out.Put<std::int32_t>(scope + "/elapsed", elapsed_.span());
  out.Put<double>(scope + "/returns", returns_.span());
  out.Put<std::uint64_t>(scope + "/episode", episode_.span());
}

void PluginBatch::Load(const StateReader& in, const std::string& scope) {
  if (const std::string& saved = in.GetText(scope + "/name"); saved != env_->table.name) {
    Fail("the saved environment is {}, not {} of {}", Printable(saved), env_->table.name, name());
  }
  if (const auto saved = in.GetValue<std::uint64_t>(scope + "/size"); saved != size_) {
    Fail("{} copies of {} were saved where there are {} now", saved, name(), size_);
  }
  seed_ = in.GetValue<std::uint64_t>(scope + "/seed");
  purpose_ = static_cast<Purpose>(in.GetValue<std::uint32_t>(scope + "/purpose"));
  first_id_ = in.GetValue<std::uint32_t>(scope + "/first_id");
  in.Get<std::byte>(scope + "/obs", buffers_.obs());
  in.Get<std::uint8_t>(scope + "/masks", buffers_.masks());
  in.Get<std::int32_t>(scope + "/elapsed", elapsed_.span());
  in.Get<double>(scope + "/returns", returns_.span());
  in.Get<std::uint64_t>(scope + "/episode", episode_.span());
  const std::string& saved_state = in.GetText(scope + "/state");
  std::vector<char> state(saved_state.begin(), saved_state.end());  // aligned for any type
  if (const std::string notes = scope + "/option_pointers"; in.Has(notes)) {
    std::vector<OptionPointer> pointers(in.GetText(notes).size() / sizeof(OptionPointer));
    in.Get<OptionPointer>(notes, pointers);
    SetOptionPointers(env_->values.all(), pointers, std::as_writable_bytes(std::span(state)));
  }
  CallPlugin(name(), "load", [&] { return env_->table.load(batch_.get(), state.data(), state.size()); });
  steps_ = 0;
  finished_.clear();
  buffers_.ClearStep();
}

}  // namespace trireme
