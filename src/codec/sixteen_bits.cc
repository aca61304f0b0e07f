// fp16 and bf16: each value by itself, rounded to nearest, ties to even. What is too large for the format
// becomes its largest value, and the rest stays in the residual.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

[[gnu::always_inline]] inline std::uint32_t BitsOf(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
[[gnu::always_inline]] inline float FloatOf(std::uint32_t bits) { return std::bit_cast<float>(bits); }

struct Fp16 {
  static constexpr const char* kName = "fp16";
  static constexpr std::uint32_t kRebias = 112u << 23;          // from an exponent of 15 to one of 127
  static constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  static constexpr std::uint32_t kLargest = 0x477FE000;         // 65504
  static constexpr std::uint16_t kNotFinite = 0x7C00;           // exponents of infinities and NaNs

  // Below the normal numbers all are multiples of 2^-24: an addition of 1/2 rounds to these.
  TRIREME_INLINE std::uint16_t To(float value) {
    const std::uint32_t bits = BitsOf(value), sign = bits & 0x80000000;
    std::uint32_t size = bits ^ sign;
    size = size > kLargest ? kLargest : size;
    const std::uint32_t normal = (size - kRebias + 0xFFF + ((size >> 13) & 1)) >> 13;
    const std::uint32_t small = BitsOf(FloatOf(size) + 0.5f) - BitsOf(0.5f);
    return static_cast<std::uint16_t>((size < kSmallestNormal ? small : normal) | (sign >> 16));
  }
  TRIREME_INLINE float From(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16, size = half & 0x7FFF;
    const float small = static_cast<float>(static_cast<std::int32_t>(size)) * 0x1p-24f;
    const std::uint32_t normal = (size << 13) + kRebias;
    return FloatOf((size < 0x400 ? BitsOf(small) : normal) | sign);
  }
};

struct Bf16 {
  static constexpr const char* kName = "bf16";
  static constexpr std::uint32_t kLargest = 0x7F7F0000;
  static constexpr std::uint16_t kNotFinite = 0x7F80;

  TRIREME_INLINE std::uint16_t To(float value) {
    const std::uint32_t bits = BitsOf(value), sign = bits & 0x80000000;
    std::uint32_t size = bits ^ sign;
    size = size > kLargest ? kLargest : size;
    return static_cast<std::uint16_t>(((size + 0x7FFF + ((size >> 16) & 1)) | sign) >> 16);
  }
  TRIREME_INLINE float From(std::uint16_t half) { return FloatOf(static_cast<std::uint32_t>(half) << 16); }
};

template <class Format>
struct EncodeKernel {
  TRIREME_INLINE void Run(const float* values, float* residual, std::uint16_t* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const float sum = values[i] + residual[i];
      out[i] = Format::To(sum);
      residual[i] = sum - Format::From(out[i]);
    }
  }
};

// False: one is not finite.
template <class Format>
struct DecodeKernel {
  TRIREME_INLINE bool Run(const std::uint16_t* in, float* values, std::size_t n) {
    std::uint16_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint16_t exponent = in[i] & Format::kNotFinite;
      most = exponent > most ? exponent : most;
      values[i] = Format::From(in[i]);
    }
    return most < Format::kNotFinite;
  }
};

template <class Format>
class SixteenBits final : public Codec {
 public:
  std::string name() const override { return Format::kName; }
  std::size_t bytes(std::size_t values) const override { return 2 * values; }

  void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const override {
    TRIREME_CHECK(out.size() == bytes(values.size()) && state.residual.size() == values.size());
    CheckSums(values, state.residual.span());
    InPieces(values.size(), [&](std::size_t first, std::size_t n, std::uint16_t* piece) {
      SimdCall<EncodeKernel<Format>>(values.data() + first, state.residual.data() + first, piece, n);
      std::memcpy(out.data() + 2 * first, piece, 2 * n);
    });
  }

  void Decode(std::span<const std::byte> in, std::span<float> values) const override {
    CheckSize(Format::kName, in.size(), bytes(values.size()));
    InPieces(values.size(), [&](std::size_t first, std::size_t n, std::uint16_t* piece) {
      std::memcpy(piece, in.data() + 2 * first, 2 * n);
      if (!SimdCall<DecodeKernel<Format>>(static_cast<const std::uint16_t*>(piece), values.data() + first, n))
        Fail("a message compressed by {} has values that are not finite", Format::kName);
    });
  }

 private:
  // Bytes of a message may lie anywhere; pieces of it are aligned.
  template <class Act>
  static void InPieces(std::size_t size, Act&& act) {
    constexpr std::size_t kPiece = 2048;
    alignas(64) std::uint16_t piece[kPiece];
    for (std::size_t first = 0; first < size; first += kPiece)
      act(first, std::min(kPiece, size - first), piece);
  }
};

}  // namespace

std::unique_ptr<Codec> MakeFp16Codec() { return std::make_unique<SixteenBits<Fp16>>(); }
std::unique_ptr<Codec> MakeBf16Codec() { return std::make_unique<SixteenBits<Bf16>>(); }

}  // namespace trireme
