// Drawing mini-batches out of stored experience.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {

// order <- a uniformly random permutation of 0, ..., n - 1 (Fisher-Yates).
inline void FillShuffled(std::span<int> order, RandomStream& random) {
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[random.NextBelow(static_cast<std::uint32_t>(i) + 1)]);
  }
}

// Samples 0, ..., n - 1 in a fresh order for every epoch, each cut into `parts` mini-batches of nearly equal
// size.
class MinibatchOrder {
 public:
  MinibatchOrder(std::size_t samples, int epochs, int parts)
      : samples_(samples), epochs_(epochs), parts_(parts), order_(samples * epochs) {}

  // Each epoch of each `iteration` has its own random stream of the shard.
  void Shuffle(std::uint64_t seed, int shard, std::uint64_t iteration) {
    for (int epoch = 0; epoch < epochs_; ++epoch) {
      RandomStream random(seed, Purpose::kShuffle, static_cast<std::uint32_t>(shard),
                          iteration * epochs_ + epoch);
      FillShuffled(std::span(order_).subspan(epoch * samples_, samples_), random);
    }
  }

  // The samples of mini-batch i, counted over all epochs.
  std::span<const int> operator[](int i) const {
    const std::size_t epoch = i / parts_, part = i % parts_;
    const std::size_t begin = samples_ * part / parts_, end = samples_ * (part + 1) / parts_;
    return std::span(order_).subspan(epoch * samples_ + begin, end - begin);
  }

 private:
  std::size_t samples_;
  int epochs_, parts_;
  std::vector<int> order_;  // [epochs, samples]
};

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
