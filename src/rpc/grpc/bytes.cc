#include "rpc/grpc/bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace trireme {

grpc::ByteBuffer Wrap(Outgoing message) {
  if (message->size() == 0) {
    const grpc::Slice empty;
    return grpc::ByteBuffer(&empty, 1);
  }
  // gRPC only reads; its C interface has no const.
  void* bytes = const_cast<std::byte*>(message->data());
  const std::size_t size = message->size();
  auto release = [](void* holder) { delete static_cast<Outgoing*>(holder); };
  const grpc::Slice slice(bytes, size, release, new Outgoing(std::move(message)));
  return grpc::ByteBuffer(&slice, 1);
}

void SliceReader::Take(grpc::ByteBuffer& buffer) {
  Clear();
  left_ = buffer.Length();
  const grpc::Status status = buffer.Dump(&slices_);
  CHECK(status.ok());
  buffer.Clear();
}

void SliceReader::Clear() {
  slices_.clear();
  slice_ = offset_ = left_ = 0;
}

void SliceReader::Read(std::span<std::byte> to) {
  CHECK(to.size() <= left_);
  left_ -= to.size();
  while (!to.empty()) {
    const grpc::Slice& slice = slices_[slice_];
    const std::size_t count = std::min(to.size(), slice.size() - offset_);
    std::memcpy(to.data(), slice.begin() + offset_, count);
    to = to.subspan(count);
    offset_ += count;
    if (offset_ == slice.size()) {
      ++slice_;
      offset_ = 0;
    }
  }
}

}  // namespace trireme
