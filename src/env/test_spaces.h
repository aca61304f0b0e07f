// An environment of any spaces, for tests: whatever can be observed, chosen and forbidden.
//
// What a copy shows, allows and whether its episode goes on is drawn anew in every step, as a function of seed, copy,
// episode and step. A discrete choice that is the first allowed one of its part pays 1 / parts, a continuous one what
// it is worth between -1 and 1.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/env/env.h"

namespace trireme {

class AnySpacesBatch final : public EnvBatch, public EnvSnapshots {
 public:
  // In all batches: actions that were taken, and those that are none, or were forbidden.
  static inline std::atomic<int> taken{0}, wrong{0};

  AnySpacesBatch(int size, EnvSpec spec)
      : spec_(std::move(spec)),
        size_(static_cast<std::size_t>(size)),
        copies_(size_),
        obs_(size_ * spec_.obs.bytes()),
        final_obs_(obs_.size()),
        masks_(spec_.masks ? size_ * spec_.action.choices() : 0),
        final_masks_(masks_.size()),
        rewards_(size_),
        terminated_(size_),
        truncated_(size_) {}

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return static_cast<int>(size_); }
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    origin_ = {seed, static_cast<std::uint64_t>(purpose), first_id};
    std::ranges::fill(copies_, Copy{});
    std::ranges::fill(rewards_, 0.0f);
    std::ranges::fill(terminated_, 0);
    std::ranges::fill(truncated_, 0);
    finished_.clear();
    for (std::size_t i = 0; i < size_; ++i) Show(i, obs_, masks_);
  }
  void StepBegin(std::span<const float> actions) override {
    finished_.clear();
    for (std::size_t i = 0; i < size_; ++i) Step(i, actions.data() + i * spec_.action.size());
  }
  void StepEnd() override {}
  std::span<const std::byte> obs() const override { return obs_; }
  std::span<const std::byte> final_obs() const override { return final_obs_; }
  std::span<const std::uint8_t> masks() const override { return masks_; }
  std::span<const std::uint8_t> final_masks() const override { return final_masks_; }
  std::span<const float> rewards() const override { return rewards_; }
  std::span<const std::uint8_t> terminated() const override { return terminated_; }
  std::span<const std::uint8_t> truncated() const override { return truncated_; }
  std::span<const EpisodeEnd> finished() const override { return finished_; }
  EnvSnapshots* snapshots() override { return this; }

  void Save(StateWriter& out, const std::string& scope) const override {
    out.Put<Origin>(scope + "/origin", {&origin_, 1});
    out.Put<Copy>(scope + "/copies", copies_);
  }
  void Load(const StateReader& in, const std::string& scope) override {
    in.Get<Origin>(scope + "/origin", {&origin_, 1});
    in.Get<Copy>(scope + "/copies", copies_);
    for (std::size_t i = 0; i < size_; ++i) Show(i, obs_, masks_);
  }

 private:
  static constexpr std::size_t kDrawn = 64;  // bytes
  struct Origin {
    std::uint64_t seed, purpose, first_id;
  };
  struct Copy {
    std::uint64_t episode = 0, step = 0;
    double sum = 0;  // of rewards
  };

  // Writes what copy i shows and allows where it is now; returns whether its episode would end here.
  bool Show(std::size_t i, std::vector<std::byte>& obs, std::vector<std::uint8_t>& masks) const {
    const auto id = static_cast<std::uint32_t>(origin_.first_id + i);
    RandomStream random(origin_.seed, static_cast<Purpose>(origin_.purpose), id,
                        (copies_[i].episode << 16) + copies_[i].step);
    const bool ends = random.NextUniform() < 0.08;
    std::uint8_t* mask = masks.data() + (spec_.masks ? i * spec_.action.choices() : 0);
    for (std::size_t part = 0; spec_.masks && part < spec_.action.parts.size(); ++part) {
      const auto choices = static_cast<std::uint32_t>(spec_.action.parts[part]);
      for (std::uint32_t a = 0; a < choices; ++a) mask[a] = random.NextUniform() < 0.5;
      mask[random.NextBelow(choices)] = 1;
      mask += choices;
    }
    // The first elements are drawn, and repeated.
    const std::size_t bytes = spec_.obs.bytes(), drawn = std::min(bytes, kDrawn);
    std::byte* const row = obs.data() + i * bytes;
    for (std::size_t k = 0; spec_.obs.type == ObsType::kUint8 && k < drawn; ++k) {
      row[k] = static_cast<std::byte>(random.NextBelow(256));
    }
    for (std::size_t k = 0; spec_.obs.type == ObsType::kFloat32 && k < drawn; k += sizeof(float)) {
      const auto x = static_cast<float>(2 * random.NextUniform() - 1);
      std::memcpy(row + k, &x, sizeof x);
    }
    for (std::size_t k = drawn; k < bytes; k += drawn) std::memcpy(row + k, row, std::min(drawn, bytes - k));
    return ends;
  }

  float Reward(const float* action, const std::uint8_t* mask) const {
    ++taken;
    if (spec_.action.box()) {
      const bool real =
          std::all_of(action, action + spec_.action.size(), [](float x) { return std::isfinite(x); });
      wrong += !real;
      return real ? std::tanh(action[0]) : 0.0f;
    }
    float reward = 0;
    for (const int choices : spec_.action.parts) {
      const float choice = *action++;
      const bool is_one = choice >= 0 && choice < static_cast<float>(choices) && choice == std::floor(choice);
      const int first = spec_.masks ? static_cast<int>(std::find(mask, mask + choices, 1) - mask) : 0;
      wrong += !is_one || (spec_.masks && mask[static_cast<int>(choice)] == 0);
      reward += choice == static_cast<float>(first) ? 1.0f : 0.0f;
      if (spec_.masks) mask += choices;
    }
    return reward / static_cast<float>(spec_.action.parts.size());
  }

  void Step(std::size_t i, const float* action) {
    Copy& copy = copies_[i];
    rewards_[i] = Reward(action, spec_.masks ? masks_.data() + i * spec_.action.choices() : nullptr);
    copy.sum += rewards_[i];
    ++copy.step;
    terminated_[i] = Show(i, obs_, masks_);
    truncated_[i] = terminated_[i] == 0 && copy.step == static_cast<std::uint64_t>(spec_.max_episode_steps);
    if ((terminated_[i] | truncated_[i]) == 0) return;
    Show(i, final_obs_, final_masks_);
    finished_.push_back({static_cast<int>(i), static_cast<int>(copy.step), copy.sum, terminated_[i] != 0});
    copy = {.episode = copy.episode + 1};
    Show(i, obs_, masks_);
  }

  EnvSpec spec_;
  std::size_t size_;
  Origin origin_{};
  std::vector<Copy> copies_;
  std::vector<std::byte> obs_, final_obs_;
  std::vector<std::uint8_t> masks_, final_masks_;
  std::vector<float> rewards_;
  std::vector<std::uint8_t> terminated_, truncated_;
  std::vector<EpisodeEnd> finished_;
};

inline EnvEntry AnySpacesEntry(const std::string& name, ObsSpec obs, ActionSpace action, bool masks) {
  const EnvSpec spec{.name = name,
                     .help = "for tests of spaces",
                     .obs = std::move(obs),
                     .action = std::move(action),
                     .masks = masks,
                     .max_episode_steps = 12};
  return {.spec = spec, .facts = {.snapshots = true, .reproducible = true}, .make = [spec](int size) {
            return std::make_unique<AnySpacesBatch>(size, spec);
          }};
}

// One of each kind that is not like the others.
inline std::vector<EnvEntry> AllSpaces() {
  const float inf = std::numeric_limits<float>::infinity();
  const auto any = [](const char* name, ObsSpec obs, ActionSpace action, bool masks = false) {
    return AnySpacesEntry(std::string("TestSpaces.") + name + "-v0", std::move(obs), std::move(action),
                          masks);
  };
  return {any("MaskedChoice", {{3}}, ActionSpace::Discrete(5), true),
          any("MaskedParts", {{3}}, ActionSpace::MultiDiscrete({3, 1, 4}), true),
          any("MaskedBytes", {{3, 5}, ObsType::kUint8}, ActionSpace::Discrete(3), true),
          any("Bytes", {{3, 3, 1}, ObsType::kUint8}, ActionSpace::Discrete(3)),
          any("MultiBinary", {{3}}, ActionSpace::MultiDiscrete(std::vector<int>(9, 2))),
          any("Unbounded", {{3}}, ActionSpace::Box({-inf, -inf, -1}, {inf, 1, inf})),
          any("OneChoice", {{3}}, ActionSpace::Discrete(1)),
          any("OneNumber", {{1}}, ActionSpace::Discrete(2)),
          any("LargeObs", {{64, 65}}, ActionSpace::Discrete(2))};
}

}  // namespace trireme
