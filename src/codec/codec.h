// Gradients and parameters in fewer bytes, for those who send them.
//
// A codec says in few bytes roughly what a span of floats is. What it does not say is not lost: it stays in a
// residual, which is added to the next values (error feedback), so that after any number of messages
//
//   sum of what was sent + residual = sum of the values,
//
// but for the rounding of these additions. Codecs are pure functions: the same values, residual and memory
// give the same bytes and the same residual, with every instruction set. Bytes are little-endian.
//
// Thread safe: a codec has no state; what it needs between messages is its caller's, see CodecState.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/aligned.h"

namespace trireme {

// What an encoder keeps between messages of `values` floats: part of a checkpoint.
struct CodecState {
  AlignedBuffer<float> residual;  // [values]
  AlignedBuffer<float> memory;    // [Codec::memory(values)]
};

class Codec {
 public:
  virtual ~Codec() = default;

  // As it was asked for, "topk=0.01": both ends of a link must have the same.
  virtual std::string name() const = 0;
  // The bytes of a message of so many floats: always the same.
  virtual std::size_t bytes(std::size_t values) const = 0;
  // Floats that an encoder remembers besides the residual.
  virtual std::size_t memory(std::size_t /*values*/) const { return 0; }

  // Encodes values + residual; the residual is then what `out` does not say. Requires out.size() ==
  // bytes(values.size()) and a state of MakeState. Throws Error, and changes nothing but `out`, when a sum is
  // not finite, or beyond 2^100.
  virtual void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const = 0;
  // Throws Error when the bytes are not such as Encode gives for so many values: also `values` is undefined
  // then.
  virtual void Decode(std::span<const std::byte> bytes, std::span<float> values) const = 0;

  // For a first message: no residual.
  CodecState MakeState(std::size_t values) const;
};

struct CodecEntry {
  const char* name;
  const char* argument;  // what may follow "name=", or null
  const char* help;
};
std::span<const CodecEntry> Codecs();

// `text`: "fp16", "topk=0.01". Throws Error, which says what there is.
std::unique_ptr<Codec> MakeCodec(std::string_view text);
// The same; null for kNoCodec, which leaves values as they are.
inline constexpr std::string_view kNoCodec = "none";
std::unique_ptr<Codec> MakeCodecOrNone(std::string_view text);

}  // namespace trireme
