#include "trireme/replay/replay_buffer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

// Records between the one that is copied and the one that is fetched ahead.
constexpr std::size_t kAhead = 32;
constexpr std::size_t kLine = AlignedBuffer<float>::kAlignment;  // bytes

// All lines of a record, up to a number after which the processor has recognised the run by itself.
void Prefetch(const float* record, std::size_t width) {
  const auto* bytes = reinterpret_cast<const char*>(record);
  const std::size_t last = std::min(width * sizeof(float) - 1, 8 * kLine);
  for (std::size_t at = 0; at < last; at += kLine) __builtin_prefetch(bytes + at);
  __builtin_prefetch(bytes + last);
}

// Copies n floats in blocks of four, so that up to TransitionBatch::kSlack floats past both ends are read and
// written. Harmless here: what follows an observation in a record is at least three floats long, and what is
// written past a row is overwritten by the next row or falls into the slack.
void CopyRow(const float* from, std::size_t n, float* to) {
  for (std::size_t i = 0; i < n; i += 4) Store(to + i, LoadAs<Vec4>(from + i));
}

// out row first + i <- record(i), of n.
template <class Record>
void UnpackRecords(const RowLayout& layout, std::size_t action_size, std::size_t first, std::size_t n,
                   Record&& record, TransitionBatch& out) {
  const std::size_t obs_size = layout.obs_size(), mask_size = layout.mask_size();
  const std::size_t width = ReplayBuffer::RecordSize(layout, static_cast<int>(action_size));
  TRIREME_CHECK(first + n <= out.capacity);
  TRIREME_CHECK(out.obs.size() == out.capacity * obs_size + TransitionBatch::kSlack);
  TRIREME_CHECK(out.next_masks.size() == out.capacity * mask_size);
  TRIREME_CHECK(out.actions.size() == out.capacity * action_size);
  const auto unpack = [&](auto&& copy_obs) {
    for (std::size_t i = 0; i < std::min(n, kAhead); ++i) Prefetch(record(i), width);
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) Prefetch(record(i + kAhead), width);
      const float* from = record(i);
      const std::size_t row = first + i;
      copy_obs(from, row);
      const float* rest = from + 2 * layout.width();
      float* actions = out.actions.data() + row * action_size;
      for (std::size_t k = 0; k < action_size; ++k) actions[k] = rest[k];
      out.returns[row] = rest[action_size];
      out.discounts[row] = rest[action_size + 1];
    }
  };
  if (layout.plain()) {
    unpack([&](const float* from, std::size_t row) {
      CopyRow(from, obs_size, out.obs.data() + row * obs_size);
      CopyRow(from + obs_size, obs_size, out.next_obs.data() + row * obs_size);
    });
  } else {
    unpack([&](const float* from, std::size_t row) {
      const float* next = from + layout.width();
      layout.UnpackObs(from, out.obs.data() + row * obs_size);
      layout.UnpackObs(next, out.next_obs.data() + row * obs_size);
      std::copy_n(layout.MaskOf(next), mask_size, out.next_masks.data() + row * mask_size);
    });
  }
  out.size = first + n;
}

}  // namespace

ReplayBuffer::ReplayBuffer(std::size_t capacity, const RowLayout& layout, int action_size)
    : capacity_(capacity),
      layout_(layout),
      action_size_(static_cast<std::size_t>(action_size)),
      width_(RecordSize(layout_, action_size)) {
  TRIREME_CHECK(capacity > 0 && capacity <= std::numeric_limits<std::uint32_t>::max());
  TRIREME_CHECK(action_size > 0);
  records_ = AlignedBuffer<float>(capacity * width_);
}

std::uint64_t ReplayBuffer::Bytes(std::size_t capacity, const RowLayout& layout, int action_size) {
  return std::uint64_t{capacity} * RecordSize(layout, action_size) * sizeof(float);
}

std::size_t ReplayBuffer::Add(const Transition& t) {
  const auto slot = static_cast<std::size_t>(added_ % capacity_);
  float* to = records_.data() + slot * width_;
  to = std::copy_n(t.obs, layout_.width(), to);
  to = std::copy_n(t.next_obs, layout_.width(), to);
  to = std::copy_n(t.actions, action_size_, to);
  to[0] = t.ret;
  to[1] = t.discount;
  ++added_;
  return slot;
}

void ReplayBuffer::Gather(std::span<const std::uint32_t> slots, TransitionBatch& out) const {
  UnpackRecords(
      layout_, action_size_, 0, slots.size(),
      [&](std::size_t i) { return records_.data() + slots[i] * width_; }, out);
}

void ReplayBuffer::GatherRecords(std::span<const std::uint32_t> slots, std::span<float> records) const {
  TRIREME_CHECK(records.size() == slots.size() * width_);
  const auto from = [&](std::size_t i) { return records_.data() + slots[i] * width_; };
  for (std::size_t i = 0; i < std::min(slots.size(), kAhead); ++i) Prefetch(from(i), width_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) Prefetch(from(i + kAhead), width_);
    std::copy_n(from(i), width_, records.data() + i * width_);
  }
}

void ReplayBuffer::Unpack(const RowLayout& layout, int action_size, std::span<const float> records,
                          std::size_t first, std::size_t n, TransitionBatch& out) {
  const std::size_t width = RecordSize(layout, action_size);
  TRIREME_CHECK(records.size() >= n * width);
  UnpackRecords(
      layout, static_cast<std::size_t>(action_size), first, n,
      [&](std::size_t i) { return records.data() + i * width; }, out);
}

void ReplayBuffer::Save(StateWriter& out, const std::string& scope) const {
  const std::array<std::uint64_t, 3> shape = {capacity_, layout_.width(), action_size_};
  out.Put<std::uint64_t>(scope + "/shape", shape);
  out.PutValue<std::uint64_t>(scope + "/added", added_);
  out.Put<float>(scope + "/records", records_.span().first(size() * width_));
}

void ReplayBuffer::Load(const StateReader& in, const std::string& scope) {
  std::array<std::uint64_t, 3> shape{};
  in.Get<std::uint64_t>(scope + "/shape", shape);
  if (shape != std::array<std::uint64_t, 3>{capacity_, layout_.width(), action_size_}) {
    Fail(
        "the saved replay buffer holds {} transitions of {} observed numbers and {} of actions; this run "
        "needs {}, {} and {}",
        shape[0], shape[1], shape[2], capacity_, layout_.width(), action_size_);
  }
  // The counter says how many records there are, so it cannot disagree with them unnoticed.
  const auto added = in.GetValue<std::uint64_t>(scope + "/added");
  const auto filled = static_cast<std::size_t>(std::min<std::uint64_t>(added, capacity_));
  in.Get<float>(scope + "/records", records_.span().first(filled * width_));
  added_ = added;
}

}  // namespace trireme
