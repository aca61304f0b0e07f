// The memory that a client and its server share: a ring of bytes for each direction. Every client has a segment of its own.
//
// It is a file without a name in memory (memfd), so nothing is left of it when both have ended, however, and no limit of
// /dev/shm concerns it. All of it is taken at once, and its length is sealed: a process that touches what is not there is
// killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/rpc/address.h"

namespace trireme {

// Bytes that may be on their way in each direction. Measured with bench/experience_bench: a quarter of it makes trajectories of 200 KB
// a third slower, and four times as much none faster.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20;

// One direction. Counts of bytes since the beginning:
//
//   read <= written <= read + kRingBytes
//
// A line of the cache for what each end writes. Both are all zero at first.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;  // the writer's, as is
  std::atomic<std::uint32_t> writer_sleeps;        // until it is woken; whoever wakes it takes it back
  alignas(64) std::atomic<std::uint64_t> read;     // the reader's, as is
  std::atomic<std::uint32_t> reader_sleeps;
};

struct SegmentHead {
  RingState to_server, to_client;
  alignas(64) std::atomic<
      std::uint32_t> ended;  // not 0: the server has closed the stream, and says why at the socket
};

class Segment {
 public:
  // A new one, and a descriptor of it for the client. Throws Error when there is no memory.
  static Segment Create(Descriptor& fd);
  // The one of `fd`. Throws Error when it is none.
  static Segment Attach(const Descriptor& fd);

  Segment() = default;
  SegmentHead& head() const { return *reinterpret_cast<SegmentHead*>(bytes_.get()); }
  std::byte* to_server() const { return bytes_.get() + kHeadBytes; }
  std::byte* to_client() const { return to_server() + kRingBytes; }

  static constexpr std::size_t kHeadBytes = 4096, kBytes = kHeadBytes + 2 * kRingBytes;

 private:
  struct Unmap {
    void operator()(std::byte* bytes) const;
  };
  explicit Segment(const Descriptor& fd);

  std::unique_ptr<std::byte, Unmap> bytes_;
};

static_assert(sizeof(SegmentHead) <= Segment::kHeadBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace trireme
