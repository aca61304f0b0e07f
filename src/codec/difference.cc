#include "trireme/codec/difference.h"

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct Negate {
  TRIREME_INLINE void Run(const float* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = -from[i];
  }
};

struct AddTo {
  TRIREME_INLINE void Run(const float* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
  }
};

}  // namespace

void CheckDifferenceCodec(std::string_view codec) {
  const std::unique_ptr<Codec> made = MakeCodecOrNone(codec);
  if (made != nullptr && made->memory(1) > 0) {
    Fail("parameters cannot be sent with {}, which needs the messages before: choose another for them",
         codec);
  }
}

DifferenceCoder::DifferenceCoder(std::string_view codec, std::size_t most_values)
    : codec_(MakeCodec(codec)), state_(codec_->MakeState(most_values)), decoded_(most_values) {
  CheckDifferenceCodec(codec);
}

bool DifferenceCoder::Encode(std::span<const float> values, std::span<float> held,
                             std::span<std::byte> message) {
  TRIREME_CHECK(values.size() == held.size() && values.size() == decoded_.size());
  // A codec encodes the sum of values and residual: here a difference.
  SimdCall<Negate>(static_cast<const float*>(held.data()), state_.residual.data(), held.size());
  try {
    codec_->Encode(values, state_, message);
  } catch (const Error&) {
    return false;
  }
  codec_->Decode(message, decoded_.span());
  SimdCall<AddTo>(static_cast<const float*>(decoded_.data()), held.data(), held.size());
  return true;
}

void DifferenceCoder::Add(std::span<const std::byte> message, std::span<float> held) {
  TRIREME_CHECK(held.size() <= decoded_.size());
  const std::span<float> decoded = decoded_.span().first(held.size());
  codec_->Decode(message, decoded);
  SimdCall<AddTo>(static_cast<const float*>(decoded.data()), held.data(), held.size());
}

}  // namespace trireme
