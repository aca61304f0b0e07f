// What value learning remembers: a step (or n of them), and batches of such memories for the learner.
//
// The target for Q(obs, actions) is  ret + discount * Q(next_obs).  The discount is gamma^k after k steps and
// 0 where the episode terminated; an episode cut off by a time limit keeps its discount.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/aligned.h"
#include "trireme/env/row.h"

namespace trireme {

// A view of one transition; whoever makes it owns what it points to.
struct Transition {
  const float* obs = nullptr;       // a row (env/row.h)
  const float* next_obs = nullptr;  // a row: the observation after the last of the k steps
  const float* actions = nullptr;   // [action_size], taken at obs
  float ret = 0;                    // rewards of the k steps, discounted
  float discount = 0;
};

// Up to `capacity` transitions, one contiguous array per field. Allocated once, filled by
// ReplayBuffer::Gather. Rows 0 ... size - 1 are meaningful.
struct TransitionBatch {
  // Room behind the last observation: Gather copies whole blocks of four floats.
  static constexpr std::size_t kSlack = 3;

  TransitionBatch(std::size_t capacity, const RowLayout& layout, int action_size)
      : capacity(capacity),
        obs(capacity * layout.obs_size() + kSlack),
        next_obs(capacity * layout.obs_size() + kSlack),
        next_masks(capacity * layout.mask_size()),
        actions(capacity * static_cast<std::size_t>(action_size)),
        returns(capacity),
        discounts(capacity) {}

  std::size_t capacity;
  std::size_t size = 0;
  AlignedBuffer<float> obs, next_obs;       // [size, obs_size], as a network reads them
  AlignedBuffer<std::uint8_t> next_masks;   // [size, mask_size]
  AlignedBuffer<float> actions;             // [size, action_size]
  AlignedBuffer<float> returns, discounts;  // [size]
};

}  // namespace trireme
