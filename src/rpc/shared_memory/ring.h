// The two ends of a ring of bytes in shared memory.
//
// Each keeps its own count to itself, and believes of the other's only what the invariant of RingState allows: a count that
// breaks it throws Error. So whatever the other process writes there, nothing outside of the ring is touched.
//
// Sleeping: the end that has nothing to do says so (Sleep), looks again, and waits at the socket. The other sees it
// after its next step, and wakes it by a byte through the socket. While both are busy there is no system call.
//
// Thread safety: each end belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/rpc/shared_memory/segment.h"

namespace trireme {

class RingWriter {
 public:
  RingWriter() = default;
  // `socket` leads to the other end.
  RingWriter(RingState& state, std::byte* bytes, int socket)
      : state_(&state), bytes_(bytes), socket_(socket) {}

  // How many bytes can be put now. Throws Error.
  std::size_t Room() const;
  // Requires that there is room. The reader sees them after Publish.
  void Put(std::span<const std::byte> bytes);
  void Publish();
  // From now on the reader wakes this end when half of the ring is free. False: so much room is there. Throws Error.
  bool Sleep(std::size_t room);

 private:
  RingState* state_ = nullptr;
  std::byte* bytes_ = nullptr;
  int socket_ = -1;
  std::uint64_t written_ = 0;
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingState& state, const std::byte* bytes, int socket)
      : state_(&state), bytes_(bytes), socket_(socket) {}

  // How many bytes can be read now. Throws Error.
  std::size_t Look();
  // What Look() has seen is all that there will ever be: the writer is gone.
  void Freeze() { frozen_ = true; }
  // Those from `offset` on. Requires that they are there.
  void Read(std::size_t offset, std::span<std::byte> to) const;
  // The first `bytes` are not needed any more.
  void Release(std::size_t bytes);
  // From now on the writer wakes this end when it publishes. False: there is more than Look() has seen. Throws Error.
  bool Sleep();

 private:
  RingState* state_ = nullptr;
  const std::byte* bytes_ = nullptr;
  int socket_ = -1;
  std::uint64_t read_ = 0;
  std::uint64_t seen_ = 0;  // of what is written
  bool frozen_ = false;
};

}  // namespace trireme
