// Collective operations between the workers of one run.
//
// Contract: all workers of a group call the same operations in the same order with the same sizes. Every call
// blocks until the group has taken part. Sums are associated as a binary tree over ranks, adjacent pairs
// first:
// ((0+1)+(2+3))+..., which is also how a worker adds its own shards (see shard_sum.h). Together they make the
// sum over all shards independent of how many workers hold them, bit for bit, if their number is a power of
// two.
//
// When one worker fails, Abort() releases the others: their pending and later calls throw Error instead of
// waiting for ever.
//
// Thread safety: a Communicator belongs to one worker; Abort() may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/link.h"

namespace trireme {

// What taking part has cost a worker so far.
struct Traffic {
  std::uint64_t bytes = 0;     // sent to others
  std::uint64_t messages = 0;  // sent to others
  double idle_s = 0;           // spent waiting for others
  std::uint64_t pushes = 0;    // gradients handed over
  // What codecs have done: bytes that messages of this worker, and to it, did without, and the time for it.
  std::int64_t bytes_saved = 0;
  double compress_s = 0, decompress_s = 0;

  Traffic& operator+=(const Traffic& other) {
    bytes += other.bytes;
    messages += other.messages;
    idle_s += other.idle_s;
    pushes += other.pushes;
    bytes_saved += other.bytes_saved;
    compress_s += other.compress_s;
    decompress_s += other.decompress_s;
    return *this;
  }
  Traffic& operator-=(const Traffic& other) {
    bytes -= other.bytes;
    messages -= other.messages;
    idle_s -= other.idle_s;
    pushes -= other.pushes;
    bytes_saved -= other.bytes_saved;
    compress_s -= other.compress_s;
    decompress_s -= other.decompress_s;
    return *this;
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void Barrier() = 0;
  // values <- rank 0's values.
  virtual void Broadcast(std::span<float> values) = 0;
  virtual void Broadcast(std::span<double> values) = 0;
  // bytes <- rank 0's bytes, whatever their number.
  virtual void Broadcast(std::string& bytes) = 0;
  // values <- the sum over ranks, at rank 0; elsewhere they stay as they are.
  virtual void ReduceSum(std::span<float> values) = 0;
  virtual void ReduceSum(std::span<double> values) = 0;
  // values <- the sum over ranks, the same bits on every rank.
  virtual void AllReduceSum(std::span<float> values) = 0;
  virtual void AllReduceSum(std::span<double> values) = 0;
  // What every rank gave, in their order, at rank 0; elsewhere nothing. Lengths may differ.
  virtual std::vector<std::string> Gather(std::string bytes) = 0;
  // The same at every rank. Unless there is a shorter way, rank 0 gathers and tells.
  virtual std::vector<std::string> AllGather(std::string bytes);

  virtual Traffic traffic() const = 0;
  // To other processes, as far as there are messages between this worker and them.
  virtual std::vector<ProcessLink> links() const { return {}; }
  virtual void Abort() = 0;
};

}  // namespace trireme
