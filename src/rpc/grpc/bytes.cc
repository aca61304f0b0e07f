#include "trireme/rpc/grpc/bytes.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

grpc::ByteBuffer PieceWriter::Next() {
  TRIREME_CHECK(!done());
  std::vector<grpc::Slice> slices;
  const std::uint64_t length = message_->size();
  if (!std::exchange(begun_, true)) slices.emplace_back(&length, sizeof length);
  const std::size_t size = std::min(kPiece, message_->size() - sent_);
  if (size > 0) {
    // gRPC only reads; its C interface has no const.
    void* bytes = const_cast<std::byte*>(message_->data() + sent_);
    auto release = [](void* holder) { delete static_cast<Outgoing*>(holder); };
    slices.emplace_back(bytes, size, release, new Outgoing(message_));
  }
  sent_ += size;
  if (sent_ == message_->size()) message_ = nullptr;
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void SliceReader::Take(grpc::ByteBuffer& buffer) {
  Clear();
  left_ = buffer.Length();
  const grpc::Status status = buffer.Dump(&slices_);
  TRIREME_CHECK(status.ok());
  buffer.Clear();
}

void SliceReader::Clear() {
  slices_.clear();
  slice_ = offset_ = left_ = 0;
}

void SliceReader::Read(std::span<std::byte> to) {
  TRIREME_CHECK(to.size() <= left_);
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

bool PieceReader::Add(grpc::ByteBuffer& piece, std::size_t limit) {
  slices_.Take(piece);
  if (!begun_) {
    whole_ = {};
    std::uint64_t length = 0;
    if (slices_.size() < sizeof length) Fail("a message that does not say how long it is");
    slices_.Read(std::as_writable_bytes(std::span(&length, 1)));
    if (length > limit) Fail("a message of {} bytes is longer than the limit of {}", length, limit);
    if (length == slices_.size()) return true;
    if (length < slices_.size()) Fail("a message of {} bytes in a piece of {}", length, slices_.size());
    try {
      whole_ = AlignedBuffer<std::byte>(length, AlignedBuffer<std::byte>::kUninitialised);
    } catch (const std::bad_alloc&) {
      Fail("there is no memory left for a message of {} bytes", length);
    }
    filled_ = read_ = 0;
    begun_ = true;
  }
  const std::size_t size = slices_.size();
  if (size == 0 || size > whole_.size() - filled_) Fail("a piece of {} bytes where none fits", size);
  slices_.Read(whole_.span().subspan(filled_, size));
  slices_.Clear();
  filled_ += size;
  begun_ = filled_ < whole_.size();
  return !begun_;
}

void PieceReader::Clear() {
  slices_.Clear();
  whole_ = {};
  begun_ = false;
}

std::size_t PieceReader::size() const { return whole_.size() > 0 ? whole_.size() - read_ : slices_.size(); }

void PieceReader::Read(std::span<std::byte> to) {
  if (whole_.size() == 0) return slices_.Read(to);
  TRIREME_CHECK(to.size() <= size());
  std::copy_n(whole_.data() + read_, to.size(), to.data());
  read_ += to.size();
}

}  // namespace trireme
