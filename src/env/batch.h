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
//   static constexpr int kChoices;                          // these two only if choices can be forbidden:
//   static void Allow(const State&, Mask* allowed);         // [kChoices], always_inline, elementwise
//   static constexpr double kPicturesPerSecond;             // these two only if it can be drawn:
//   static void Draw(const std::array<double, kStateSize>&, Picture&);   // pictures of one size
//
// The state of all copies is kept as structure of arrays, [kStateSize, padded size], and a step takes two
// passes. The first (lanes.h) advances every copy, kLanes at a time, and turns their observations into rows; the
// second looks for finished episodes, eight flags at a time, and restarts those copies. Every environment made so
// has the option max_steps, can be saved and is reproducible.
//
// Whoever includes this compiles without floating-point contraction (-ffp-contract=off): else results depend on
// the instruction set, and the linker may take such copies of built-in environments for everybody.
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
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/env/env.h"
#include "trireme/env/lanes.h"
#include "trireme/env/registry.h"
#include "trireme/env/vec.h"

namespace trireme {

// A batch whose states can be looked at and replaced, and whose copies can have seeds of their own: for tests, for
// continuing from a known state, and for whoever seeds as Gymnasium does.
class SettableBatch : public EnvBatch {
 public:
  // The state of copy i, as many numbers as the environment has.
  virtual std::vector<double> StateOf(int i) const = 0;
  // Replaces the state of copy i and its observation, and leaves its clock, return and episode number alone.
  virtual void SetState(int i, std::span<const double> state) = 0;
  // Starts episode 0 of every copy. Copy i then draws what the first copy draws after Reset(seeds[i], purpose, 0).
  virtual void ResetEach(std::span<const std::uint64_t> seeds, Purpose purpose) = 0;
};

// How copies of E are drawn; null: not at all.
template <class E>
struct SoaDrawing {
  void (*draw)(const std::array<double, E::kStateSize>& state, Picture& out) = nullptr;
  double per_second = 0;
};

template <class E>
class SoaBatch final : public SettableBatch, private EnvSnapshots, private EnvPictures {
 public:
  explicit SoaBatch(int size, EnvSpec spec = E::Spec(), SoaDrawing<E> drawing = {})
      : spec_(std::move(spec)),
        drawing_(drawing),
        limit_(spec_.max_episode_steps > 0 ? spec_.max_episode_steps
                                           : std::numeric_limits<double>::infinity()),
        size_(static_cast<std::size_t>(size)),
        padded_((size_ + kBlock - 1) / kBlock * kBlock),
        state_(E::kStateSize * padded_),
        elapsed_(padded_),
        returns_(padded_),
        episode_(size_),
        obs_(E::kObsSize * size_),
        final_obs_(E::kObsSize * size_),
        masks_(kMaskSize * size_),
        final_masks_(kMaskSize * size_),
        final_state_(drawing_.draw != nullptr ? E::kStateSize * size_ : 0),
        rewards_(padded_),
        terminated_(padded_),
        truncated_(padded_) {
    TRIREME_CHECK(size > 0);
    TRIREME_CHECK(spec_.obs == (ObsSpec{{E::kObsSize}}) && spec_.action.size() == E::kActionSize);
    TRIREME_CHECK(spec_.masks == (kMaskSize > 0) && (!spec_.masks || spec_.action.choices() == kMaskSize));
    finished_.reserve(size_);
    Reset(0, Purpose::kTest, 0);
  }

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return static_cast<int>(size_); }

  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    seed_ = seed;
    purpose_ = purpose;
    first_id_ = first_id;
    own_seeds_.clear();
    StartEpisodes();
  }

  void ResetEach(std::span<const std::uint64_t> seeds, Purpose purpose) override {
    TRIREME_CHECK(seeds.size() == size_);
    seed_ = 0;
    purpose_ = purpose;
    first_id_ = 0;
    own_seeds_.assign(seeds.begin(), seeds.end());
    StartEpisodes();
  }

  void StepBegin(std::span<const float> actions) override {
    TRIREME_CHECK(actions.size() == size_ * E::kActionSize);
    const std::size_t full_blocks = size_ / kBlock;
    if (full_blocks > 0) {
      const batch_internal::Lanes lanes = LanesFrom(0, actions.data(), obs_.data(), masks_.data());
      SimdCall<batch_internal::StepLanes<E>>(&lanes, full_blocks, limit_);
    }
    if (const std::size_t first = full_blocks * kBlock; first < size_) StepTail(first, actions);
    finished_.clear();
    for (std::size_t first = 0; first < padded_; first += kBlock) FinishEpisodes(first);
  }
  void StepEnd() override {}

  std::vector<double> StateOf(int i) const override {
    TRIREME_CHECK(i >= 0 && i < size());
    const Single s = LoadState(static_cast<std::size_t>(i));
    return {s.begin(), s.end()};
  }
  void SetState(int i, std::span<const double> state) override {
    TRIREME_CHECK(i >= 0 && i < size() && state.size() == E::kStateSize);
    Single s;
    std::copy(state.begin(), state.end(), s.begin());
    Store(static_cast<std::size_t>(i), s);
  }

  std::span<const std::byte> obs() const override { return std::as_bytes(obs_.span()); }
  std::span<const std::byte> final_obs() const override { return std::as_bytes(final_obs_.span()); }
  std::span<const std::uint8_t> masks() const override { return masks_.span(); }
  std::span<const std::uint8_t> final_masks() const override { return final_masks_.span(); }
  std::span<const float> rewards() const override { return rewards_.span().first(size_); }
  std::span<const std::uint8_t> terminated() const override { return terminated_.span().first(size_); }
  std::span<const std::uint8_t> truncated() const override { return truncated_.span().first(size_); }
  std::span<const EpisodeEnd> finished() const override { return finished_; }
  EnvSnapshots* snapshots() override { return this; }
  EnvPictures* pictures() override { return drawing_.draw != nullptr ? this : nullptr; }

 private:
  static constexpr std::size_t kBlock = batch_internal::kBlock;
  static constexpr std::size_t kMaskSize = batch_internal::kMaskSize<E>;
  static constexpr double kLongest = std::numeric_limits<int>::max();  // episode that can be told
  using Single = std::array<double, E::kStateSize>;                    // the state of one copy

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
    if (!own_seeds_.empty()) out.Put<std::uint64_t>(scope + "/own_seeds", own_seeds_);
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
    own_seeds_.resize(in.Has(scope + "/own_seeds") ? size_ : 0);
    if (!own_seeds_.empty()) in.Get<std::uint64_t>(scope + "/own_seeds", own_seeds_);
    ClearOutputs();
    for (std::size_t i = 0; i < size_; ++i) Store(i, LoadState(i));
  }

  double per_second() const override { return drawing_.per_second; }
  void Draw(int env, Picture& out) override {
    TRIREME_CHECK(env >= 0 && env < size());
    const auto i = static_cast<std::size_t>(env);
    Single s = LoadState(i);
    if (terminated_[i] != 0 || truncated_[i] != 0) std::copy_n(FinalStateOf(i), E::kStateSize, s.begin());
    drawing_.draw(s, out);
  }

  static std::string StateSection(const std::string& scope, std::size_t k) {
    return scope + "/state/" + std::to_string(k);
  }

  batch_internal::Lanes LanesFrom(std::size_t first, const float* actions, float* obs, std::uint8_t* masks) {
    return {.actions = actions,
            .state = state_.data() + first,
            .state_stride = padded_,
            .obs = obs,
            .masks = masks,
            .rewards = rewards_.data() + first,
            .returns = returns_.data() + first,
            .elapsed = elapsed_.data() + first,
            .terminated = terminated_.data() + first,
            .truncated = truncated_.data() + first};
  }

  // The last block when it is not full: what has no room for the padding goes through copies. The padding's own
  // state is set back, so that it can neither overflow nor end an episode.
  void StepTail(std::size_t first, std::span<const float> actions) {
    std::array<float, kBlock * E::kActionSize> block_actions{};
    std::array<float, kBlock * E::kObsSize> block_obs;
    std::array<std::uint8_t, kBlock * kMaskSize> block_masks;
    const std::size_t count = size_ - first;
    std::copy_n(actions.begin() + first * E::kActionSize, count * E::kActionSize, block_actions.begin());
    const batch_internal::Lanes lanes =
        LanesFrom(first, block_actions.data(), block_obs.data(), block_masks.data());
    SimdCall<batch_internal::StepLanes<E>>(&lanes, std::size_t{1}, limit_);
    std::copy_n(block_obs.begin(), count * E::kObsSize, ObsOf(first));
    std::copy_n(block_masks.begin(), count * kMaskSize, MasksOf(first));
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
                           .length = static_cast<int>(std::min(elapsed_[i], kLongest)),
                           .episode_return = returns_[i],
                           .terminated = terminated_[i] != 0});
      std::copy_n(ObsOf(i), E::kObsSize, final_obs_.begin() + i * E::kObsSize);
      std::copy_n(MasksOf(i), kMaskSize, final_masks_.begin() + i * kMaskSize);
      if (drawing_.draw != nullptr) std::ranges::copy(LoadState(i), FinalStateOf(i));
      ++episode_[i];
      StartEpisode(i);
    }
  }

  void StartEpisodes() {
    std::fill(episode_.begin(), episode_.end(), 0);
    ClearOutputs();
    for (std::size_t i = 0; i < size_; ++i) StartEpisode(i);
  }

  void StartEpisode(std::size_t i) {
    const bool own = !own_seeds_.empty();
    RandomStream random(own ? own_seeds_[i] : seed_, purpose_,
                        own ? 0 : first_id_ + static_cast<std::uint32_t>(i), episode_[i]);
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
    for (std::size_t k = 0; k < E::kObsSize; ++k) ObsOf(i)[k] = static_cast<float>(o[k][0]);
    if constexpr (kMaskSize > 0) {
      std::array<Mask, kMaskSize> allowed;
      E::Allow(s, allowed.data());
      for (std::size_t a = 0; a < kMaskSize; ++a) {
        MasksOf(i)[a] = static_cast<std::uint8_t>(allowed[a][0] & 1);
      }
    }
  }

  float* ObsOf(std::size_t i) { return obs_.data() + i * E::kObsSize; }
  std::uint8_t* MasksOf(std::size_t i) { return masks_.data() + i * kMaskSize; }

  double* FinalStateOf(std::size_t i) { return final_state_.data() + i * E::kStateSize; }

  void ClearOutputs() {
    std::fill(final_obs_.begin(), final_obs_.end(), 0.0f);
    std::fill(final_masks_.begin(), final_masks_.end(), 0);
    std::fill(rewards_.begin(), rewards_.end(), 0.0f);
    std::fill(terminated_.begin(), terminated_.end(), 0);
    std::fill(truncated_.begin(), truncated_.end(), 0);
    finished_.clear();
  }

  EnvSpec spec_;
  SoaDrawing<E> drawing_;
  double limit_;  // steps of an episode
  std::size_t size_;
  std::size_t padded_;  // size_ rounded up to whole blocks
  std::uint64_t seed_ = 0;
  Purpose purpose_ = Purpose::kTest;
  std::uint32_t first_id_ = 0;
  std::vector<std::uint64_t>
      own_seeds_;                  // of the copies, where they have any; else seed_ and their numbers count
  AlignedBuffer<double> state_;    // [kStateSize, padded_]
  AlignedBuffer<double> elapsed_;  // steps taken in the current episode; double to match the other lanes
  AlignedBuffer<double> returns_;  // rewards of the current episode so far
  AlignedBuffer<std::uint64_t> episode_;             // number of the current episode
  AlignedBuffer<float> obs_, final_obs_;             // [size_, kObsSize]
  AlignedBuffer<std::uint8_t> masks_, final_masks_;  // [size_, kMaskSize]
  AlignedBuffer<double> final_state_;                // [size_, kStateSize] if drawn; meaningful where done
  AlignedBuffer<float> rewards_;
  AlignedBuffer<std::uint8_t> terminated_, truncated_;
  std::vector<EpisodeEnd> finished_;
};

template <class E>
EnvEntry SoaEntry(int max_steps = E::Spec().max_episode_steps);

template <class E>
class SoaOptions final : public EnvOptions {
 public:
  explicit SoaOptions(int max_steps) : max_steps_(max_steps) {}
  void Fields(ConfigFields& field) override {
    field("max_steps", max_steps_, "steps after which an episode is cut off; 0: never", Between(0, 1e9));
  }
  EnvEntry Entry(const EnvArgs&) const override { return SoaEntry<E>(max_steps_); }

 private:
  int max_steps_;
};

// A row of the table.
template <class E>
EnvEntry SoaEntry(int max_steps) {
  EnvSpec spec = E::Spec();
  spec.max_episode_steps = max_steps;
  EnvEntry entry{.spec = spec,
                 .facts = {.snapshots = true, .reproducible = true},
                 .make = [spec](int size) { return std::make_unique<SoaBatch<E>>(size, spec); },
                 .options = [max_steps] { return std::make_unique<SoaOptions<E>>(max_steps); }};
  if constexpr (requires { E::kPicturesPerSecond; }) {
    entry.make_drawn = [spec](int size) {
      const SoaDrawing<E> drawing{.draw = &E::Draw, .per_second = E::kPicturesPerSecond};
      return std::make_unique<SoaBatch<E>>(size, spec, drawing);
    };
  }
  return entry;
}

}  // namespace trireme
