// What actors have collected, remembered as transitions in a ring and drawn by priority: a learner's own, or that of one
// of several replay servers.
//
// Trajectories stand for themselves: a transition spans up to n steps and never the end of a trajectory, where the
// observation after its last step takes over, with the discount of as many steps as there were. So one that was lost
// spoils no other. Each step becomes the start of one transition, in the order and with the bits of n_step.h. Its first error is what the actor says, `extra`.
//
// Transitions have numbers, counted from 0 in the order in which they came. Errors may come back when a transition
// has been overwritten by a newer one; they are then left out.
//
// Thread safety: none; a part belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/state.h"
#include "trireme/env/spec.h"
#include "trireme/replay/replay_buffer.h"
#include "trireme/replay/sampler.h"
#include "trireme/rollout/trajectory.h"

namespace trireme {

// Some transitions that were drawn to learn from.
struct ReplayDraw {
  ReplayDraw(std::size_t size, const RowLayout& layout, int action_size)
      : numbers(size), transitions(size, layout, action_size), weights(size) {}

  std::size_t size() const { return numbers.size(); }

  std::vector<std::uint64_t> numbers;
  TransitionBatch transitions;
  std::vector<float> weights;  // see PrioritisedSampler
};

struct ReplayRules {
  std::size_t capacity = 0;  // transitions
  int n_step = 1;
  double gamma = 0.99;
  double alpha = 0.6, epsilon = 1e-2;  // of priorities, see PrioritisedSampler
};

class ReplayPart {
 public:
  // For trajectories of so many environments with observations, actions and masks as in `env`.
  ReplayPart(const ReplayRules& rules, const EnvSpec& env, int envs);

  static std::uint64_t Bytes(const ReplayRules& rules, const EnvSpec& env);

  void Insert(const Trajectory& trajectory);
  // draw <- draw.size() transitions. Requires that something was inserted.
  void Sample(RandomStream& random, double beta, ReplayDraw& draw);
  // New errors of some that were drawn. Requires numbers below inserted().
  void Update(std::span<const std::uint64_t> numbers, std::span<const float> errors);

  // As Sample, but the transitions as records of a buffer, one after the other (ReplayBuffer::Unpack).
  void SampleRecords(RandomStream& random, double beta, std::span<std::uint64_t> numbers,
                     std::span<float> weights, std::span<float> records);

  // What the last Insert or Update has changed, for whoever keeps a copy: slots, and the errors they have now.
  std::span<const std::uint32_t> changed_slots() const { return slots_; }
  std::span<const float> changed_errors() const { return errors_; }
  std::span<const float> record(std::uint32_t slot) const { return buffer_.record(slot); }
  // Of the transition that is in a slot.
  std::uint64_t NumberIn(std::uint32_t slot) const;
  // For a part that is found again: as after `inserted` transitions, where restore(slot, record, error) fills in what is in a
  // slot. Where it returns false that is lost, and will not be drawn.
  template <class Restored>
  void Restore(std::uint64_t inserted, Restored&& restored);

  std::uint64_t inserted() const { return buffer_.added(); }
  std::size_t size() const { return buffer_.size(); }
  std::uint64_t overwritten_errors() const { return overwritten_errors_; }

  void Save(StateWriter& out, const std::string& scope) const;
  void Load(const StateReader& in, const std::string& scope);

 private:
  void DrawSlots(RandomStream& random, double beta, std::span<std::uint64_t> numbers,
                 std::span<float> weights);

  RowLayout layout_;
  std::size_t action_size_;
  int n_step_;
  double gamma_;
  std::vector<float> discounts_;  // [n + 1], gamma^k
  ReplayBuffer buffer_;
  PrioritisedSampler sampler_;
  std::uint64_t overwritten_errors_ = 0;
  std::vector<int> pending_;          // [B], scratch: steps of an environment that wait for their transition
  std::vector<std::uint32_t> slots_;  // of the last call
  std::vector<float> errors_;
};

template <class Restored>
void ReplayPart::Restore(std::uint64_t inserted, Restored&& restored) {
  slots_.clear();
  errors_.clear();
  buffer_.Restore(inserted, [&](std::size_t slot, std::span<float> record) {
    float error = 0;
    if (!restored(static_cast<std::uint32_t>(slot), record, error)) return;
    slots_.push_back(static_cast<std::uint32_t>(slot));
    errors_.push_back(error);
  });
  sampler_.Update(slots_, errors_);
}

}  // namespace trireme
