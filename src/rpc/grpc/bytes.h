// Our messages as gRPC's, and back, without copying on the way out and with one copy on the way in.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <vector>

#include "rpc/transport.h"

namespace trireme {

// Shares the bytes of `message` until gRPC is done with them.
grpc::ByteBuffer Wrap(Outgoing message);

// Reads from the pieces in which a message came from the network.
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

}  // namespace trireme
