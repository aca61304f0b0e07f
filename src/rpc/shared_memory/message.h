// Messages through a ring: eight bytes with the length, little-endian, and the bytes.
//
// One that takes at most half of the ring is written at once and read from where it is. A longer one goes through in
// pieces, which the reader puts together.
//
// Thread safety: each end belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "trireme/rpc/shared_memory/ring.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class RingMessageWriter {
 public:
  RingMessageWriter() = default;
  explicit RingMessageWriter(RingWriter ring) : ring_(ring) {}

  // Whether nothing is on its way into the ring.
  bool done() const { return message_ == nullptr; }
  // Requires done().
  void Begin(Outgoing message);
  // Writes what there is room for. Throws Error.
  void Advance();
  // See RingWriter. Requires !done().
  bool Sleep() { return ring_.Sleep(Needed()); }
  // What is not in the ring will never be.
  void Drop() { message_ = nullptr; }

 private:
  // How much room the next step needs.
  std::size_t Needed() const;

  RingWriter ring_;
  Outgoing message_;
  std::size_t sent_ = 0;
  bool begun_ = false;
};

class MessageReader final : public Incoming {
 public:
  MessageReader() = default;
  explicit MessageReader(RingReader ring) : ring_(ring) {}

  // Lets go of the message before. True: the next one is there, and can be read until the next call. Throws Error when it is
  // longer than `limit`, when there is no memory for it, or when the ring is damaged.
  bool Next(std::size_t limit);
  // See RingReader.
  void Freeze() {
    ring_.Look();
    ring_.Freeze();
  }
  bool Sleep() { return ring_.Sleep(); }

  std::size_t size() const override { return length_ - at_; }
  void Read(std::span<std::byte> to) override;

 private:
  void Begin(std::size_t limit);

  RingReader ring_;
  std::size_t length_ = 0;           // of the message
  std::size_t at_ = 0;               // of it, what is read next
  bool begun_ = false;               // its length is known
  bool whole_ = false;               // it has been handed over
  AlignedBuffer<std::byte> pieces_;  // of a long one
  std::size_t filled_ = 0;           // of them
};

}  // namespace trireme
