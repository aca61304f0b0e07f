// int8: every kBlock values share a scale, the largest of them divided by 127, and are whole multiples of it.
// A message has all scales, then all values.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

constexpr std::size_t kBlock = 256;
constexpr float kSteps = 127;
// Smaller scales have no inverse: such values are as good as zero, and stay in the residual.
constexpr float kSmallestScale = 0x1p-120f;
// Adding and subtracting it rounds numbers below 2^22 to whole ones, ties to even.
constexpr float kRound = 0x1.8p23f;

// Returns the scale.
struct EncodeBlock {
  TRIREME_INLINE float Run(const float* values, float* residual, std::int8_t* out, std::size_t n) {
    std::uint32_t most = 0;  // bits of absolute values have the order of the values
    for (std::size_t i = 0; i < n; ++i) {
      residual[i] += values[i];
      const std::uint32_t size = std::bit_cast<std::uint32_t>(residual[i]) & 0x7FFFFFFF;
      most = size > most ? size : most;
    }
    const float scale = std::bit_cast<float>(most) / kSteps;
    if (scale < kSmallestScale) {
      for (std::size_t i = 0; i < n; ++i) out[i] = 0;
      return 0;
    }
    const float inverse = 1 / scale;
    for (std::size_t i = 0; i < n; ++i) {
      float steps = (residual[i] * inverse + kRound) - kRound;
      steps = steps > kSteps ? kSteps : steps < -kSteps ? -kSteps : steps;
      out[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(steps));
      residual[i] -= steps * scale;
    }
    return scale;
  }
};

struct DecodeBlock {
  TRIREME_INLINE void Run(const std::int8_t* in, float scale, float* values, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(in[i]) * scale;
  }
};

class Int8 final : public Codec {
 public:
  std::string name() const override { return "int8"; }
  std::size_t bytes(std::size_t values) const override { return Blocks(values) * sizeof(float) + values; }

  void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const override {
    TRIREME_CHECK(out.size() == bytes(values.size()) && state.residual.size() == values.size());
    CheckSums(values, state.residual.span());
    std::byte* const steps = out.data() + Blocks(values.size()) * sizeof(float);
    for (std::size_t first = 0; first < values.size(); first += kBlock) {
      const std::size_t n = std::min(kBlock, values.size() - first);
      const float scale = SimdCall<EncodeBlock>(values.data() + first, state.residual.data() + first,
                                                reinterpret_cast<std::int8_t*>(steps + first), n);
      std::memcpy(out.data() + first / kBlock * sizeof scale, &scale, sizeof scale);
    }
  }

  void Decode(std::span<const std::byte> in, std::span<float> values) const override {
    CheckSize("int8", in.size(), bytes(values.size()));
    const std::byte* const steps = in.data() + Blocks(values.size()) * sizeof(float);
    for (std::size_t first = 0; first < values.size(); first += kBlock) {
      float scale;
      std::memcpy(&scale, in.data() + first / kBlock * sizeof scale, sizeof scale);
      if (!(scale >= 0 && std::isfinite(scale * kSteps)))
        Fail("a message compressed by int8 has a scale of {}", scale);
      SimdCall<DecodeBlock>(reinterpret_cast<const std::int8_t*>(steps + first), scale, values.data() + first,
                            std::min(kBlock, values.size() - first));
    }
  }

 private:
  static std::size_t Blocks(std::size_t values) { return (values + kBlock - 1) / kBlock; }
};

}  // namespace

std::unique_ptr<Codec> MakeInt8Codec() { return std::make_unique<Int8>(); }

}  // namespace trireme
