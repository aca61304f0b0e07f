// Processes anywhere, by messages of MPI.
//
// Sums follow the tree of communicator.h whatever the size. Between a power of two of ranks, m = 2^k:
//   - up to kSmall bytes: recursive doubling. In round i a rank exchanges its whole partial sum with
//     rank ^ 2^i. k messages of n bytes.
//   - beyond: reduce-scatter by halving, then allgather. In round i a rank sends the half of its range that
//     its partner rank ^ 2^i keeps, and adds what it gets to the half it keeps; then the finished parts go
//     back the same way. n (m - 1) / m bytes each way. Halves travel in segments of kSegment bytes, so that
//     adding one overlaps with moving the next; in the last round a segment goes back once it is finished.
// Between any other number: up a binomial tree to rank 0 and down again.
//
// An allgather between a power of two of ranks: in round i a rank exchanges all it has with rank ^ 2^i, lengths
// first; between any other number rank 0 gathers and tells.
//
// A broadcast goes down a binomial tree, a reduction up; a gathering is two messages of every other rank
// (length, bytes), a barrier a round of empty messages for each doubling of m.
//
// MPI counts the bytes of a message with int: what is longer than `longest` travels as several messages.
//
// Every wait has a deadline. All calls but Abort() from one thread.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/comm/peer_communicator.h"

namespace trireme {

// Throws Error when a call of MPI failed.
void CheckMpi(int code, const char* what);

class MessageCommunicator final : public PeerCommunicator {
 public:
  static constexpr std::size_t kSmall = 32 * 1024;
  static constexpr std::size_t kSegment = 512 * 1024;
  static constexpr std::size_t kLongest = std::size_t{1} << 30;

  // Owns `comm`. `names`: what messages call the ranks. `longest`: bytes of one message, a multiple of 8 and
  // the same at all ranks. `measured`: links are tried out first, by all ranks.
  MessageCommunicator(MPI_Comm comm, std::vector<std::string> names, bool spin, double timeout_s,
                      std::size_t longest, bool measured = true);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override;
  void Broadcast(std::span<float> values) override { BroadcastBytes(std::as_writable_bytes(values)); }
  void Broadcast(std::span<double> values) override { BroadcastBytes(std::as_writable_bytes(values)); }
  void Broadcast(std::string& bytes) override;
  void ReduceSum(std::span<float> values) override { Reduce(values); }
  void ReduceSum(std::span<double> values) override { Reduce(values); }
  void AllReduceSum(std::span<float> values) override { AllReduce(values); }
  void AllReduceSum(std::span<double> values) override { AllReduce(values); }
  std::vector<std::string> Gather(std::string bytes) override;
  std::vector<std::string> AllGather(std::string bytes) override;
  Traffic traffic() const override;
  // To the ranks that sums and broadcasts go to: those that differ in one bit.
  std::vector<ProcessLink> links() const override;
  void Abort() override { post_->aborted.store(true); }
  void Send(int to, std::span<const float> values) override;
  void Receive(int from, std::span<float> values) override;
  std::unique_ptr<PeerCommunicator> Split(int colour) override;
  // Gives MPI time for messages that are on their way, of this communicator and those it was split into. For waits
  // that do not call MPI.
  void LetMessagesMove();

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = -1;
  };
  // What collective operations send, and what one rank sends to another, each in order; and what nobody sends.
  static constexpr int kTag = 0, kPeerTag = 1, kNobodysTag = 2;
  Pending StartSend(int to, std::span<const std::byte> bytes, int tag = kTag);
  Pending StartReceive(int from, std::span<std::byte> bytes, int tag = kTag);
  bool Done(Pending& pending);
  void Wait(Pending& pending);
  void MeasureLinks();
  void Send(int to, std::span<const std::byte> bytes);
  void Receive(int from, std::span<std::byte> bytes);
  // Both at once. The partner gives as much as is taken here, and takes as much as is given.
  void Exchange(int partner, std::span<const std::byte> give, std::span<std::byte> take);
  void BroadcastBytes(std::span<std::byte> bytes);

  template <class T>
  std::span<T> Scratch(std::size_t size);
  template <class T>
  void Reduce(std::span<T> values);
  template <class T>
  void AllReduce(std::span<T> values);
  template <class T>
  void RecursiveDoubling(std::span<T> values);
  template <class T>
  void HalvingAndGathering(std::span<T> values);
  template <class T>
  void ExchangeAndAdd(int partner, std::span<T> give, std::span<T> keep, bool last);

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  const std::vector<std::string> names_;
  const int spins_;
  const double timeout_s_;
  const std::size_t longest_;
  const char* operation_ = "";             // for messages
  AlignedBuffer<std::byte> scratch_;       // grows to the largest operand
  std::vector<Pending> sends_, receives_;  // of segments
  std::vector<ProcessLink> links_;         // by rank of the other end
  // What a communicator and those it is split into have together.
  struct Post {
    struct Outgoing {
      std::vector<float> values;
      std::vector<Pending> sends;
    };
    std::atomic<bool> aborted{false};
    std::list<Outgoing> outgoing;  // copies of what is on its way to another rank
    bool used = false;             // whether anything was ever sent so
  };
  std::shared_ptr<Post> post_ = std::make_shared<Post>();
};

}  // namespace trireme
