// SoaBatch<E>: turns a single-instance environment E into an EnvBatch.
//
// E is a struct of constants and static functions, a whole environment in a screen or two
// (classic/cart_pole.h is a model to copy):
//
//   static constexpr int kStateSize, kObsSize, kActionSize;
//   using State = std::array<Vec, kStateSize>;                  // of kLanes copies: see vec.h
//   static EnvSpec Spec();
//   static void Reset(std::array<double, kStateSize>&, RandomStream&);   // draws an initial state
//   static StepResult Step(State&, const Vec* action);                   // always_inline, elementwise
//   static void Observe(const State&, Vec* obs);                         // always_inline, elementwise
//
// The state of all copies is kept as structure of arrays, [kStateSize, padded size], and a step takes two
// passes. The first advances every copy, kLanes at a time; the second looks for finished episodes, eight
// flags at a time, and restarts those copies.
//
// Invariant: what happens to a copy depends on nothing but its own state and action, to the last bit. Copies
// are processed in blocks of kBlock, the last one padded, so that all of them go through the same
// instructions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/env/env.h"
#include "trireme/env/vec.h"

namespace trireme {

struct StepResult {
  Vec reward;
  Mask terminated;
};

namespace batch_internal {

inline constexpr int kBlock = 8;

template <class V, class T>
[[gnu::always_inline]] inline V LoadVector(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V, class T>
[[gnu::always_inline]] inline void StoreVector(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// What the first pass reads and writes, starting at some block.
struct Lanes {
  const float* actions;  // [copies, kActionSize]
  double* state;         // [kStateSize, state_stride]
  std::size_t state_stride;
  float* obs;  // [kObsSize, obs_stride]
  std::size_t obs_stride;
  float* rewards;  // the rest: [copies]
  double* returns;
  double* elapsed;
  std::uint8_t* terminated;
  std::uint8_t* truncated;
};

// The first pass.
template <class E>
struct StepLanes {
  [[gnu::always_inline]] static inline void Run(const Lanes* lanes, std::size_t blocks, double limit) {
    static_assert(kBlock == 2 * kLanes && kBlock == sizeof(std::uint64_t));
    const Lanes l = *lanes;
    for (std::size_t first = 0; first < blocks * kBlock; first += kBlock) {
      const Ends low = StepVec(l, first, limit);
      const Ends high = StepVec(l, first + kLanes, limit);
      StoreVector(l.terminated + first, ToBytes(low.terminated, high.terminated));
      StoreVector(l.truncated + first, ToBytes(low.truncated, high.truncated));
    }
  }

 private:
  struct Ends {
    Mask terminated;
    Mask truncated;
  };

  // Eight masks to eight bytes of 0 or 1.
  [[gnu::always_inline]] static inline std::uint64_t ToBytes(Mask low, Mask high) {
    constexpr std::int64_t kOne = 1;
    const Bits bytes = (low & Bits{kOne, kOne << 8, kOne << 16, kOne << 24}) |
                       (high & Bits{kOne << 32, kOne << 40, kOne << 48, kOne << 56});
    return static_cast<std::uint64_t>((bytes[0] | bytes[1]) | (bytes[2] | bytes[3]));
  }

  // Steps copies i ... i + kLanes - 1.
  [[gnu::always_inline]] static inline Ends StepVec(const Lanes& l, std::size_t i, double limit) {
    std::array<Vec, E::kActionSize> action;
    if constexpr (E::kActionSize == 1) {
      action[0] = ToDouble(LoadVector<FloatVec>(l.actions + i));
    } else {
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int k = 0; k < E::kActionSize; ++k) {
          action[k][lane] = l.actions[(i + lane) * E::kActionSize + k];
        }
      }
    }
    typename E::State s;
    for (int k = 0; k < E::kStateSize; ++k) s[k] = LoadVector<Vec>(l.state + k * l.state_stride + i);
    const StepResult result = E::Step(s, action.data());
    for (int k = 0; k < E::kStateSize; ++k) StoreVector(l.state + k * l.state_stride + i, s[k]);
    std::array<Vec, E::kObsSize> obs;
    E::Observe(s, obs.data());
    for (int k = 0; k < E::kObsSize; ++k) StoreVector(l.obs + k * l.obs_stride + i, ToFloat(obs[k]));
    StoreVector(l.rewards + i, ToFloat(result.reward));
    StoreVector(l.returns + i, LoadVector<Vec>(l.returns + i) + result.reward);
    const Vec elapsed = LoadVector<Vec>(l.elapsed + i) + 1.0;
    StoreVector(l.elapsed + i, elapsed);
    return {.terminated = result.terminated, .truncated = (elapsed >= limit) & ~result.terminated};
  }
};

}  // namespace batch_internal

template <class E>
class SoaBatch final : public EnvBatch {
 public:
  explicit SoaBatch(int size)
      : spec_(E::Spec()),
        size_(static_cast<std::size_t>(size)),
        padded_((size_ + kBlock - 1) / kBlock * kBlock),
        state_(E::kStateSize * padded_),
        elapsed_(padded_),
        returns_(padded_),
        episode_(size_),
        obs_(E::kObsSize * size_),
        final_obs_(E::kObsSize * size_),
        rewards_(padded_),
        terminated_(padded_),
        truncated_(padded_) {
    TRIREME_CHECK(size > 0);
    TRIREME_CHECK(spec_.obs_size == E::kObsSize && spec_.action.size() == E::kActionSize);
    finished_.reserve(size_);
    Reset(0, Purpose::kTest, 0);
  }

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return static_cast<int>(size_); }

  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    seed_ = seed;
    purpose_ = purpose;
    first_id_ = first_id;
    std::fill(episode_.begin(), episode_.end(), 0);
    ClearOutputs();
    for (std::size_t i = 0; i < size_; ++i) StartEpisode(i);
  }

  void Step(std::span<const float> actions) override {
    TRIREME_CHECK(actions.size() == size_ * E::kActionSize);
    const std::size_t full_blocks = size_ / kBlock;
    if (full_blocks > 0) {
      const batch_internal::Lanes lanes = LanesFrom(0, actions.data(), obs_.data(), size_);
      SimdCall<batch_internal::StepLanes<E>>(&lanes, full_blocks,
                                             static_cast<double>(spec_.max_episode_steps));
    }
    if (const std::size_t first = full_blocks * kBlock; first < size_) StepTail(first, actions);
    finished_.clear();
    for (std::size_t first = 0; first < padded_; first += kBlock) FinishEpisodes(first);
  }

  void SetState(int i, std::span<const double> state) override {
    TRIREME_CHECK(i >= 0 && i < size() && state.size() == E::kStateSize);
    Single s;
    std::copy(state.begin(), state.end(), s.begin());
    Store(static_cast<std::size_t>(i), s);
  }

  std::span<const float> obs() const override { return obs_.span(); }
  std::span<const float> final_obs() const override { return final_obs_.span(); }
  std::span<const float> rewards() const override { return rewards_.span().first(size_); }
  std::span<const std::uint8_t> terminated() const override { return terminated_.span().first(size_); }
  std::span<const std::uint8_t> truncated() const override { return truncated_.span().first(size_); }
  std::span<const EpisodeEnd> finished() const override { return finished_; }

  void Save(StateWriter& out, const std::string& scope) const override {
    out.PutText(scope + "/name", spec_.name);
    out.PutValue<std::uint64_t>(scope + "/size", size_);
    out.PutValue<std::uint64_t>(scope + "/seed", seed_);
    out.PutValue<std::uint32_t>(scope + "/purpose", static_cast<std::uint32_t>(purpose_));
    out.PutValue<std::uint32_t>(scope + "/first_id", first_id_);
    for (std::size_t k = 0; k < E::kStateSize; ++k) {
      out.Put<double>(StateSection(scope, k), state_.span().subspan(k * padded_, size_));
    }
    out.Put<double>(scope + "/elapsed", elapsed_.span().first(size_));
    out.Put<double>(scope + "/returns", returns_.span().first(size_));
    out.Put<std::uint64_t>(scope + "/episode", episode_.span());
  }

  void Load(const StateReader& in, const std::string& scope) override {
    if (const std::string& name = in.GetText(scope + "/name"); name != spec_.name) {
      Fail("the saved environment is {}, not {}", name, spec_.name);
    }
    if (const auto saved = in.GetValue<std::uint64_t>(scope + "/size"); saved != size_) {
      Fail("{} copies of {} were saved where there are {} now", saved, spec_.name, size_);
    }
    seed_ = in.GetValue<std::uint64_t>(scope + "/seed");
    purpose_ = static_cast<Purpose>(in.GetValue<std::uint32_t>(scope + "/purpose"));
    first_id_ = in.GetValue<std::uint32_t>(scope + "/first_id");
    for (std::size_t k = 0; k < E::kStateSize; ++k) {
      in.Get<double>(StateSection(scope, k), state_.span().subspan(k * padded_, size_));
    }
    in.Get<double>(scope + "/elapsed", elapsed_.span().first(size_));
    in.Get<double>(scope + "/returns", returns_.span().first(size_));
    in.Get<std::uint64_t>(scope + "/episode", episode_.span());
    ClearOutputs();
    for (std::size_t i = 0; i < size_; ++i) Store(i, LoadState(i));
  }

 private:
  static constexpr std::size_t kBlock = batch_internal::kBlock;
  using Single = std::array<double, E::kStateSize>;  // the state of one copy

  static std::string StateSection(const std::string& scope, std::size_t k) {
    return scope + "/state/" + std::to_string(k);
  }

  batch_internal::Lanes LanesFrom(std::size_t first, const float* actions, float* obs,
                                  std::size_t obs_stride) {
    return {.actions = actions,
            .state = state_.data() + first,
            .state_stride = padded_,
            .obs = obs,
            .obs_stride = obs_stride,
            .rewards = rewards_.data() + first,
            .returns = returns_.data() + first,
            .elapsed = elapsed_.data() + first,
            .terminated = terminated_.data() + first,
            .truncated = truncated_.data() + first};
  }

  // The last block when it is not full: actions and observations have no room for the padding, so they go
  // through copies. The padding's own state is set back, so that it can neither overflow nor end an episode.
  void StepTail(std::size_t first, std::span<const float> actions) {
    std::array<float, kBlock * E::kActionSize> block_actions{};
    std::array<float, kBlock * E::kObsSize> block_obs;
    const std::size_t count = size_ - first;
    std::copy_n(actions.begin() + first * E::kActionSize, count * E::kActionSize, block_actions.begin());
    const batch_internal::Lanes lanes = LanesFrom(first, block_actions.data(), block_obs.data(), kBlock);
    SimdCall<batch_internal::StepLanes<E>>(&lanes, std::size_t{1},
                                           static_cast<double>(spec_.max_episode_steps));
    for (std::size_t k = 0; k < E::kObsSize; ++k) {
      std::copy_n(block_obs.begin() + k * kBlock, count, obs_.begin() + k * size_ + first);
    }
    for (std::size_t i = size_; i < padded_; ++i) {
      for (std::size_t k = 0; k < E::kStateSize; ++k) state_[k * padded_ + i] = 0;
      elapsed_[i] = 0;
      terminated_[i] = truncated_[i] = 0;
    }
  }

  // The second pass, for the eight copies from `first`.
  void FinishEpisodes(std::size_t first) {
    static_assert(kBlock == sizeof(std::uint64_t) && std::endian::native == std::endian::little);
    std::uint64_t terminated, truncated;
    std::memcpy(&terminated, terminated_.data() + first, kBlock);
    std::memcpy(&truncated, truncated_.data() + first, kBlock);
    for (std::uint64_t done = terminated | truncated; done != 0; done &= done - 1) {
      const std::size_t i = first + static_cast<std::size_t>(std::countr_zero(done)) / 8;
      finished_.push_back({.env = static_cast<int>(i),
                           .length = static_cast<int>(elapsed_[i]),
                           .episode_return = returns_[i],
                           .terminated = terminated_[i] != 0});
      for (std::size_t k = 0; k < E::kObsSize; ++k) final_obs_[k * size_ + i] = obs_[k * size_ + i];
      ++episode_[i];
      StartEpisode(i);
    }
  }

  void StartEpisode(std::size_t i) {
    RandomStream random(seed_, purpose_, first_id_ + static_cast<std::uint32_t>(i), episode_[i]);
    Single s;
    E::Reset(s, random);
    Store(i, s);
    elapsed_[i] = 0;
    returns_[i] = 0;
  }

  Single LoadState(std::size_t i) const {
    Single s;
    for (std::size_t k = 0; k < E::kStateSize; ++k) s[k] = state_[k * padded_ + i];
    return s;
  }

  void Store(std::size_t i, const Single& single) {
    typename E::State s;
    for (std::size_t k = 0; k < E::kStateSize; ++k) {
      state_[k * padded_ + i] = single[k];
      s[k] = Broadcast(single[k]);
    }
    std::array<Vec, E::kObsSize> o;
    E::Observe(s, o.data());
    for (std::size_t k = 0; k < E::kObsSize; ++k) obs_[k * size_ + i] = static_cast<float>(o[k][0]);
  }

  void ClearOutputs() {
    std::fill(final_obs_.begin(), final_obs_.end(), 0.0f);
    std::fill(rewards_.begin(), rewards_.end(), 0.0f);
    std::fill(terminated_.begin(), terminated_.end(), 0);
    std::fill(truncated_.begin(), truncated_.end(), 0);
    finished_.clear();
  }

  EnvSpec spec_;
  std::size_t size_;
  std::size_t padded_;  // size_ rounded up to whole blocks
  std::uint64_t seed_ = 0;
  Purpose purpose_ = Purpose::kTest;
  std::uint32_t first_id_ = 0;
  AlignedBuffer<double> state_;    // [kStateSize, padded_]
  AlignedBuffer<double> elapsed_;  // steps taken in the current episode; double to match the other lanes
  AlignedBuffer<double> returns_;  // rewards of the current episode so far
  AlignedBuffer<std::uint64_t> episode_;  // number of the current episode
  AlignedBuffer<float> obs_, final_obs_;  // [kObsSize, size_]
  AlignedBuffer<float> rewards_;
  AlignedBuffer<std::uint8_t> terminated_, truncated_;
  std::vector<EpisodeEnd> finished_;
};

}  // namespace trireme
