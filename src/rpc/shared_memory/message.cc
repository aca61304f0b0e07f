#include "trireme/rpc/shared_memory/message.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kHeader = sizeof(std::uint64_t);
constexpr std::size_t kAtOnce = kRingBytes / 2;  // of a message with its header
// Of a longer one, so that one end fills the ring while the other empties it.
constexpr std::size_t kPiece = kRingBytes / 4;

bool IsShort(std::size_t length) { return length <= kAtOnce - kHeader; }

}  // namespace

void RingMessageWriter::Begin(Outgoing message) {
  message_ = std::move(message);
  sent_ = 0;
  begun_ = false;
}

std::size_t RingMessageWriter::Needed() const {
  if (begun_) return 1;
  return IsShort(message_->size()) ? kHeader + message_->size() : kAtOnce;
}

void RingMessageWriter::Advance() {
  while (message_ != nullptr) {
    std::size_t room = ring_.Room();  // looked at once: the other end may say something else at any time
    if (room < Needed()) return;
    const std::uint64_t length = message_->size();
    if (!std::exchange(begun_, true)) {
      ring_.Put(std::as_bytes(std::span(&length, 1)));
      room -= kHeader;
    }
    const std::size_t size = std::min({room, message_->size() - sent_, IsShort(length) ? kAtOnce : kPiece});
    ring_.Put(message_->span().subspan(sent_, size));
    ring_.Publish();
    sent_ += size;
    if (sent_ == length) message_ = nullptr;
  }
}

bool MessageReader::Next(std::size_t limit) {
  if (whole_) {
    if (IsShort(length_)) ring_.Release(kHeader + length_);
    pieces_ = {};
    begun_ = whole_ = false;
  }
  std::size_t there = ring_.Look();
  if (!begun_) {
    if (there < kHeader) return false;
    Begin(limit);
    there -= IsShort(length_) ? 0 : kHeader;
  }
  if (IsShort(length_)) return whole_ = there >= kHeader + length_;
  const std::size_t size = std::min(there, length_ - filled_);
  ring_.Read(0, pieces_.span().subspan(filled_, size));
  ring_.Release(size);
  filled_ += size;
  return whole_ = filled_ == length_;
}

void MessageReader::Begin(std::size_t limit) {
  std::uint64_t length = 0;
  ring_.Read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > limit) Fail("a message of {} bytes is longer than the limit of {}", length, limit);
  if (!IsShort(length)) {
    try {
      pieces_ = AlignedBuffer<std::byte>(length, AlignedBuffer<std::byte>::kUninitialised);
    } catch (const std::bad_alloc&) {
      Fail("there is no memory left for a message of {} bytes", length);
    }
    ring_.Release(kHeader);
  }
  length_ = length;
  at_ = filled_ = 0;
  begun_ = true;
}

void MessageReader::Read(std::span<std::byte> to) {
  TRIREME_CHECK(to.size() <= size());
  if (IsShort(length_)) {
    ring_.Read(kHeader + at_, to);
  } else if (!to.empty()) {
    std::memcpy(to.data(), pieces_.data() + at_, to.size());
  }
  at_ += to.size();
}

}  // namespace trireme
