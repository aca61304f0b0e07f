// Map and reduce over samples that are spread over workers, written on the Communicator.
//
//   local  = Map(own, sums, emit)   every worker: what its own samples emit, added up where they lie
//   Reduce*(comm, local)            all workers: their local results, added up at the root
//
// The local reduction is what makes it cheap: a worker sends one vector of d numbers however many samples it
// has. What the root adds itself never travels, so a reduction moves (m - 1) * d numbers between m workers.
//
// Order of additions. The samples are cut into kBlocks blocks. A block adds its samples in order; blocks are
// added as the binary tree ((0+1)+(2+3))+((4+5)+(6+7)). ShardSum builds the lower levels of that tree inside
// a worker and the Communicator the upper levels between workers, so 1, 2, 4 and 8 workers round in the same
// places and give the same bits.
//
// All workers call the same reductions in the same order; each call blocks until all have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/comm/shard_sum.h"

namespace trireme {

inline constexpr int kBlocks = 8;
inline constexpr int kRoot = 0;  // the worker that holds w and updates it

// The blocks of one worker. Any number of workers up to kBlocks can share the samples; Map requires a power
// of two.
class OwnBlocks {
 public:
  OwnBlocks(std::size_t samples, int worker, int workers)
      : samples_(samples), first_(kBlocks * worker / workers), last_(kBlocks * (worker + 1) / workers) {}

  int first() const { return first_; }
  int last() const { return last_; }  // exclusive
  // The first sample of a block; Begin(last()) is the end of the worker's samples. A block may be empty.
  std::size_t Begin(int block) const { return samples_ * static_cast<std::size_t>(block) / kBlocks; }
  std::size_t samples() const { return Begin(last_) - Begin(first_); }

 private:
  std::size_t samples_;  // of all workers
  int first_, last_;
};

// Calls emit(j, sum) for each of the worker's samples j, which adds its numbers to `sum`. Returns the sum
// over the worker's samples, valid until `sums` is used again.
template <class Emit>
std::span<double> Map(const OwnBlocks& own, ShardSum<double>& sums, Emit&& emit) {
  for (int block = own.first(); block < own.last(); ++block) {
    const std::span<double> sum = sums.Next();
    for (std::size_t j = own.Begin(block); j < own.Begin(block + 1); ++j) emit(j, sum);
    sums.Add();
  }
  return sums.Total();
}

// local <- its sum over workers, at the root; elsewhere it stays as it is. Sends local.size() numbers.
inline void ReduceSum(Communicator& comm, std::span<double> local) { comm.ReduceSum(local); }

// How many there are on all workers together: at the root; elsewhere the own count. Sends one number.
inline std::uint64_t ReduceCount(Communicator& comm, std::uint64_t own) {
  double count = static_cast<double>(own);
  comm.ReduceSum(std::span<double>(&count, 1));
  return static_cast<std::uint64_t>(count);
}

// The mean over the samples of all workers. `local` holds a worker's sums and, as its last element, how many
// samples they are of: a mean of the workers' means would be wrong where they have different numbers of
// samples. At the root the sums become means (0 when there is no sample at all); elsewhere they stay as they
// are. Sends local.size() numbers.
inline void ReduceMean(Communicator& comm, std::span<double> local) {
  comm.ReduceSum(local);
  if (comm.rank() != kRoot || local.back() == 0) return;
  for (double& value : local.first(local.size() - 1)) value /= local.back();
}

}  // namespace trireme
