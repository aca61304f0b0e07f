// Messages of known length, written and read piece by piece, numbers as the memory of an x86-64 has them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/error.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class MessageParts {
 public:
  explicit MessageParts(std::size_t bytes)
      : message_(
            std::make_shared<AlignedBuffer<std::byte>>(bytes, AlignedBuffer<std::byte>::kUninitialised)) {}

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
