#include "trireme/rpc/shared_memory/ring.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr char kDamaged[] = "the other end has damaged the memory that it shares";

// The other end, if it sleeps. It looks at the counts before it sleeps, and after it has said that it does: one
// of the two sees what the other has done, since all of this has one order (the default of atomics).
void Wake(std::atomic<std::uint32_t>& sleeps, int socket) {
  if (sleeps.load() == 0 || sleeps.exchange(0) == 0) return;
  // A socket that takes no more has woken it before.
  (void)send(socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

std::size_t RingWriter::Room() const {
  const std::uint64_t used = written_ - state_->read.load();
  if (used > kRingBytes) Fail(kDamaged);
  return kRingBytes - used;
}

void RingWriter::Put(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t at = written_ % kRingBytes, first = std::min(bytes.size(), kRingBytes - at);
  std::memcpy(bytes_ + at, bytes.data(), first);
  std::memcpy(bytes_, bytes.data() + first, bytes.size() - first);
  written_ += bytes.size();
}

void RingWriter::Publish() {
  state_->written.store(written_);
  Wake(state_->reader_sleeps, socket_);
}

bool RingWriter::Sleep(std::size_t room) {
  state_->writer_sleeps.store(1);
  return Room() < room;
}

std::size_t RingReader::Look() {
  if (!frozen_) seen_ = state_->written.load();
  if (seen_ - read_ > kRingBytes) Fail(kDamaged);
  return seen_ - read_;
}

void RingReader::Read(std::size_t offset, std::span<std::byte> to) const {
  if (to.empty()) return;
  const std::size_t at = (read_ + offset) % kRingBytes, first = std::min(to.size(), kRingBytes - at);
  std::memcpy(to.data(), bytes_ + at, first);
  std::memcpy(to.data() + first, bytes_, to.size() - first);
}

void RingReader::Release(std::size_t bytes) {
  read_ += bytes;
  state_->read.store(read_);
  // Not for every little: whoever waits for room has much to write. A reader that has read all that it can
  // leaves less than half of the ring behind (MessageReader), so a writer does not wait for ever.
  if (seen_ - read_ <= kRingBytes / 2) Wake(state_->writer_sleeps, socket_);
}

bool RingReader::Sleep() {
  state_->reader_sleeps.store(1);
  const std::uint64_t seen = seen_;
  Look();
  return seen_ == seen;
}

}  // namespace trireme
