// fp16 and bf16: each value by itself, rounded to nearest, ties to even. What is too large for the format
// becomes its largest value, and the rest stays in the residual.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/half.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

template <class Format>
struct EncodeKernel {
  TRIREME_INLINE void Run(const float* values, float* residual, std::uint16_t* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const float sum = values[i] + residual[i];
      out[i] = Format::ToFinite(sum);
      residual[i] = sum - Format::FromFinite(out[i]);
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
      values[i] = Format::FromFinite(in[i]);
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
