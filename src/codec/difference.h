// Parameters in fewer bytes: a codec's message says what changed since the last one.
//
// Sender and receiver hold the same values. The sender encodes the difference between what it has and what the
// receiver holds; both then add what the message says, with the same operations, and so hold the same bits
// again. What a message does not say is part of the next difference: nothing has to be remembered for it.
//
// Codecs that remember more than a residual (Codec::memory) cannot be used: what is held is all there is.
//
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "trireme/codec/codec.h"

namespace trireme {

class DifferenceCoder {
 public:
  // For up to `most_values`. Throws Error for a codec that is unknown, or remembers more than a residual.
  DifferenceCoder(std::string_view codec, std::size_t most_values);

  std::size_t bytes(std::size_t values) const { return codec_->bytes(values); }

  // The sender's end: `message` says how `held` becomes more like `values`, and `held` is then what the
  // receiver will hold. Requires message.size() == bytes(values.size()). False, with `held` as it was, when a
  // difference cannot be encoded, because something is not finite: send the values themselves. Does not
  // allocate, but for codecs that do.
  bool Encode(std::span<const float> values, std::span<float> held, std::span<std::byte> message);
  // The receiver's. Throws Error, with `held` as it was, for what Encode does not make.
  void Add(std::span<const std::byte> message, std::span<float> held);

 private:
  std::unique_ptr<Codec> codec_;
  CodecState state_;              // of one message
  AlignedBuffer<float> decoded_;  // the same
};

// Throws Error unless parameters can be sent with `codec`, which may be kNoCodec.
void CheckDifferenceCodec(std::string_view codec);

}  // namespace trireme
