// Drawing mini-batches out of stored experience. Pure functions.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "trireme/base/rng.h"

namespace trireme {

// order <- a uniformly random permutation of 0, ..., n - 1 (Fisher-Yates).
inline void FillShuffled(std::span<int> order, RandomStream& random) {
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[random.NextBelow(static_cast<std::uint32_t>(i) + 1)]);
  }
}

// to[i] = from[rows[i]], for rows of `width` floats. Rows lie anywhere in memory: a plain loop per array
// keeps many cache misses in flight at once.
inline void GatherRows(std::span<const float> from, std::size_t width, std::span<const int> rows,
                       std::span<float> to) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float* row = from.data() + rows[i] * width;
    for (std::size_t k = 0; k < width; ++k) to[i * width + k] = row[k];
  }
}

}  // namespace trireme
