// The sum over a worker's own shards, as the same binary tree that Communicator uses over ranks.
//
// Shards are added in order; like carries of a binary counter, two partial sums of equal weight merge at
// once. Eight shards therefore give ((0+1)+(2+3))+((4+5)+(6+7)), and four workers of two shards each give the
// same bits as one worker of eight. Requires a power-of-two number of additions before Total().
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trireme/base/aligned.h"

namespace trireme {

// T is float (gradients) or double (statistics).
template <class T>
class ShardSum {
 public:
  explicit ShardSum(std::size_t size) : size_(size) {}
  std::size_t size() const { return size_; }

  // A zeroed buffer to fill with the next shard's values; Add() takes it in.
  std::span<T> Next();
  void Add();
  // The sum of all shards added since the last Total(). Valid until the next call of Next().
  std::span<T> Total();

 private:
  std::size_t size_;
  std::vector<AlignedBuffer<T>> levels_;  // a stack of partial sums, see shard_sum.cc
  std::size_t added_ = 0;
};

}  // namespace trireme
