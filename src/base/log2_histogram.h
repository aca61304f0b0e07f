// Counts of whole numbers by powers of two: up to 1, 2 and 3, 4 to 7, 8 to 15, ...
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace trireme {

struct Log2Histogram {
  static constexpr std::size_t kBuckets = 32;       // the last has all that is larger, too
  std::array<std::uint64_t, kBuckets> counts = {};  // [i]: from 2^i, below 2^(i + 1)
  std::uint64_t sum = 0;

  void Add(std::uint64_t value) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(value | 1) - 1);
    ++counts[std::min(bucket, kBuckets - 1)];
    sum += value;
  }
  Log2Histogram& operator+=(const Log2Histogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts[i] += other.counts[i];
    sum += other.sum;
    return *this;
  }
  std::uint64_t count() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }
  // 0 when there was nothing.
  double mean() const {
    const std::uint64_t n = count();
    return n == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(n);
  }
  // Without the empty end.
  std::vector<std::uint64_t> Buckets() const {
    std::size_t end = kBuckets;
    while (end > 0 && counts[end - 1] == 0) --end;
    return {counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end)};
  }
};

}  // namespace trireme
