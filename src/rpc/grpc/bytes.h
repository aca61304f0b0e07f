// Our messages as gRPC's, and back, without copying on the way out.
//
// gRPC holds a whole message of its own before anybody can look at it, and ends the process when there is no
// memory for that. So a message of ours travels in pieces of about a megabyte, each a message of gRPC's:
// eight bytes with the length of ours, little-endian, and its first bytes; then the rest. Whoever receives
// knows the length before it holds more than one piece, and refuses what is too long or what it has no memory
// for.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <vector>

#include "trireme/rpc/transport.h"

namespace trireme {

// Bytes of a message in one piece. Messages of a megabyte, with a header, need one.
inline constexpr std::size_t kPiece = (std::size_t{1} << 20) + 4096;

// A message on its way out.
class PieceWriter {
 public:
  PieceWriter() = default;
  explicit PieceWriter(Outgoing message) : message_(std::move(message)) {}

  // Whether nothing is left.
  bool done() const { return message_ == nullptr; }
  // The next piece. It shares the bytes of the message until gRPC is done with them.
  grpc::ByteBuffer Next();

 private:
  Outgoing message_;
  std::size_t sent_ = 0;
  bool begun_ = false;
};

// Reads from the slices in which a piece came from the network.
class SliceReader final : public Incoming {
 public:
  // Takes the content of `buffer`, which is empty afterwards.
  void Take(grpc::ByteBuffer& buffer);
  // Gives the memory back.
  void Clear();

  std::size_t size() const override { return left_; }
  void Read(std::span<std::byte> to) override;

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t slice_ = 0;   // the one to read next,
  std::size_t offset_ = 0;  // from here
  std::size_t left_ = 0;
};

// Puts messages together. One that came in one piece is read from where it is; for a longer one memory is
// taken at once, as much as it needs.
class PieceReader final : public Incoming {
 public:
  // Takes a piece, which is empty afterwards. True: a message is whole, and can be read until the next call.
  // Throws Error when the message is longer than `limit`, when there is no memory for it, or when it is none.
  bool Add(grpc::ByteBuffer& piece, std::size_t limit);
  // Gives the memory back.
  void Clear();

  std::size_t size() const override;
  void Read(std::span<std::byte> to) override;

 private:
  SliceReader slices_;
  AlignedBuffer<std::byte> whole_;  // of a message in several pieces
  std::size_t filled_ = 0;          // of it
  std::size_t read_ = 0;            // of it
  bool begun_ = false;              // a message, of which pieces are to come
};

}  // namespace trireme
