// Messages of known length, written and read piece by piece, numbers as the memory of an x86-64 has them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/rpc/transport.h"

namespace trireme {

// Memory of messages that are all of one length, or mostly: goes round, since the system takes longer to find new memory for
// a long message than it takes to write it. Thread safety: all threads may use it, and let go of messages.
class MessageMemory {
 public:
  std::shared_ptr<AlignedBuffer<std::byte>> Take(std::size_t bytes) {
    std::unique_ptr<Buffer> buffer;
    {
      const std::lock_guard lock(spare_->mutex);
      if (bytes != std::exchange(spare_->bytes, bytes)) spare_->buffers.clear();
      if (!spare_->buffers.empty()) {
        buffer = std::move(spare_->buffers.back());
        spare_->buffers.pop_back();
      }
    }
    if (buffer == nullptr) buffer = std::make_unique<Buffer>(bytes, Buffer::kUninitialised);
    return {buffer.release(), [spare = spare_](Buffer* back) { spare->Keep(std::unique_ptr<Buffer>(back)); }};
  }

 private:
  using Buffer = AlignedBuffer<std::byte>;
  static constexpr std::size_t kMost = 8;

  struct Spare {
    std::mutex mutex;       // guards:
    std::size_t bytes = 0;  // of each
    std::vector<std::unique_ptr<Buffer>> buffers;

    void Keep(std::unique_ptr<Buffer> buffer) {
      const std::lock_guard lock(mutex);
      if (buffer->size() == bytes && buffers.size() < kMost) buffers.push_back(std::move(buffer));
    }
  };
  std::shared_ptr<Spare> spare_ = std::make_shared<Spare>();  // messages may outlive us
};

class MessageParts {
 public:
  explicit MessageParts(std::size_t bytes)
      : message_(
            std::make_shared<AlignedBuffer<std::byte>>(bytes, AlignedBuffer<std::byte>::kUninitialised)) {}
  MessageParts(std::size_t bytes, MessageMemory& memory) : message_(memory.Take(bytes)) {}

  template <class T>
  void Put(std::span<const T> values) {
    std::ranges::copy(std::as_bytes(values), message_->data() + at_);
    at_ += values.size_bytes();
  }
  template <class T>
  void PutOne(const T& value) {
    Put(std::span(&value, 1));
  }
  // Room for so many values, to be written before Done. Requires that they lie as such values must.
  template <class T>
  std::span<T> Room(std::size_t n) {
    auto* const first = reinterpret_cast<T*>(message_->data() + at_);
    at_ += n * sizeof(T);
    return {first, n};
  }
  // Requires that all of it was written.
  Outgoing Done() {
    TRIREME_CHECK(at_ == message_->size());
    return std::move(message_);
  }

 private:
  std::shared_ptr<AlignedBuffer<std::byte>> message_;
  std::size_t at_ = 0;
};

template <class T>
void ReadTo(Incoming& message, std::span<T> to) {
  if (!to.empty()) message.Read(std::as_writable_bytes(to));
}

template <class T>
T ReadOne(Incoming& message) {
  T value;
  ReadTo(message, std::span(&value, 1));
  return value;
}

// The rest of a header whose first member was read before.
template <class Header, class First>
void ReadRest(Incoming& message, const First& first, Header& header) {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&header, 1));
  std::ranges::copy(std::as_bytes(std::span(&first, 1)), bytes.begin());
  message.Read(bytes.subspan(sizeof first));
}

}  // namespace trireme
