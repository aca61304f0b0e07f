#include "trireme/replay/sum_tree.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

constexpr std::size_t kBranch = 16;     // floats of a cache line
constexpr std::size_t kTogether = 128;  // searches that descend side by side

// The sums of children 0-3, 4-7, 8-11 and 12-15.
Vec4 QuarterSums(const float* children) {
  const auto a = LoadAs<Vec4>(children), b = LoadAs<Vec4>(children + 4);
  const auto c = LoadAs<Vec4>(children + 8), d = LoadAs<Vec4>(children + 12);
  const Vec4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Vec4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// The first of four intervals of these lengths whose end lies beyond `position`, else the fourth; `position`
// becomes relative to its start. An interval of length zero can only be the fourth.
std::size_t FindInFour(const float* lengths, double& position) {
  // Without branches: which way they go is random, and a misprediction costs more than all of this.
  const double end0 = lengths[0], end1 = end0 + lengths[1], end2 = end1 + lengths[2];
  const double starts[4] = {0, end0, end1, end2};
  const std::size_t found = std::size_t{end0 <= position} + (end1 <= position) + (end2 <= position);
  position -= starts[found];
  return found;
}

// The child that `position`, counted from the start of their parent, falls into.
std::size_t FindChild(const float* children, double& position) {
  float quarters[4];
  Store(quarters, QuarterSums(children));
  const std::size_t quarter = FindInFour(quarters, position);
  std::size_t child = 4 * quarter + FindInFour(children + 4 * quarter, position);
  // Sums are rounded, so a position just below the end of the parent may lie beyond all of its children:
  // then at the end of the last one that has any weight.
  if (children[child] == 0) [[unlikely]] {
    while (child > 0 && children[child] == 0) --child;
    position = children[child];
  }
  return child;
}

}  // namespace

SumTree::Levels::Levels(std::size_t capacity) {
  TRIREME_CHECK(capacity > 0 && capacity <= std::numeric_limits<std::uint32_t>::max());
  std::size_t nodes = capacity;
  while (true) {
    const auto level = static_cast<std::size_t>(count++);
    const std::size_t lines = (nodes + kBranch - 1) / kBranch;
    offset[level] = floats;
    size[level] = nodes;
    floats += lines * kBranch;
    // Even a single slot has a root above it, so that level 0 never is the last.
    if (nodes == 1 && level > 0) return;
    nodes = lines;
  }
}

SumTree::SumTree(std::size_t capacity) : capacity_(capacity), levels_(capacity), nodes_(levels_.floats) {}

std::uint64_t SumTree::Bytes(std::size_t capacity) {
  return std::uint64_t{Levels(capacity).floats} * sizeof(float);
}

void SumTree::Sum(int level, std::size_t i) {
  const auto l = static_cast<std::size_t>(level);
  const Vec4 sums = QuarterSums(nodes_.data() + levels_.offset[l - 1] + i * kBranch);
  nodes_[levels_.offset[l] + i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void SumTree::Set(std::span<const std::uint32_t> slots, std::span<const float> values) {
  TRIREME_CHECK(slots.size() == values.size());
  for (const std::uint32_t slot : slots) __builtin_prefetch(&nodes_[slot], 1);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    TRIREME_CHECK(slots[i] < capacity_ && values[i] >= 0 && values[i] <= std::numeric_limits<float>::max());
    nodes_[slots[i]] = values[i];
  }
  for (int level = 1; level < levels_.count; ++level) {
    const std::size_t nodes = levels_.size[static_cast<std::size_t>(level)];
    // Summing a node once more does no harm; summing all of a small level is cheaper.
    if (nodes <= slots.size()) {
      for (std::size_t i = 0; i < nodes; ++i) Sum(level, i);
    } else {
      std::size_t last = SIZE_MAX;  // neighbours, as new ones are, share it
      for (const std::uint32_t slot : slots) {
        const std::size_t node = std::size_t{slot} >> (4 * level);
        if (node != last) Sum(level, node);
        last = node;
      }
    }
  }
}

void SumTree::Assign(std::span<const float> values) {
  TRIREME_CHECK(values.size() <= capacity_);
  std::ranges::copy(values, nodes_.begin());
  std::fill(nodes_.begin() + values.size(), nodes_.begin() + capacity_, 0.0f);
  for (int level = 1; level < levels_.count; ++level) {
    for (std::size_t i = 0; i < levels_.size[static_cast<std::size_t>(level)]; ++i) Sum(level, i);
  }
}

void SumTree::Find(std::span<const double> positions, std::span<std::uint32_t> slots) const {
  TRIREME_CHECK(positions.size() == slots.size());
  double rest[kTogether];
  for (std::size_t begin = 0; begin < slots.size(); begin += kTogether) {
    const std::size_t n = std::min(kTogether, slots.size() - begin);
    std::uint32_t* node = slots.data() + begin;
    for (std::size_t i = 0; i < n; ++i) {
      rest[i] = positions[begin + i] > 0 ? positions[begin + i] : 0;
      node[i] = 0;
    }
    for (int level = levels_.count - 2; level >= 0; --level) {
      const float* nodes = nodes_.data() + levels_.offset[static_cast<std::size_t>(level)];
      const float* below =
          level > 0 ? nodes_.data() + levels_.offset[static_cast<std::size_t>(level) - 1] : nodes;
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t first = std::size_t{node[i]} * kBranch;
        const std::size_t found = first + FindChild(nodes + first, rest[i]);
        node[i] = static_cast<std::uint32_t>(found);
        if (level > 0) __builtin_prefetch(below + found * kBranch);
      }
    }
  }
}

}  // namespace trireme
