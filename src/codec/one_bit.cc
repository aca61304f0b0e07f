// onebit: a sign for every value; the mean of the values with each sign stands for them, for every kBlock
// values (1-bit stochastic gradient descent, Seide et al. 2014, with blocks instead of columns). A message has
// for each block the mean of those that are not negative, the mean of those that are, then the signs of all
// blocks, least significant bit first.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

constexpr std::size_t kBlock = 256;
constexpr std::size_t kLanes = 16;  // sums that are kept apart, so that all instruction sets add alike

struct Means {
  float positive = 0, negative = 0;
};

[[gnu::always_inline]] inline float Total(const float* lanes) {
  float total = 0;
  for (std::size_t j = 0; j < kLanes; ++j) total += lanes[j];
  return total;
}

struct EncodeBlock {
  TRIREME_INLINE Means Run(const float* values, float* residual, std::uint8_t* bits, std::size_t n) {
    float positive[kLanes] = {}, negative[kLanes] = {};
    std::int32_t below[kLanes] = {};
    const auto add = [&](std::size_t i, std::size_t j) {
      const float sum = values[i] + residual[i], under = sum < 0 ? sum : 0;
      residual[i] = sum;
      positive[j] += sum - under;
      negative[j] += under;
      below[j] += sum < 0;
    };
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) add(i + j, j);
    }
    for (std::size_t j = 0; i + j < n; ++j) add(i + j, j);
    std::int32_t negatives = 0;
    for (std::size_t j = 0; j < kLanes; ++j) negatives += below[j];
    const std::int32_t positives = static_cast<std::int32_t>(n) - negatives;
    const Means means{positives > 0 ? Total(positive) / static_cast<float>(positives) : 0,
                      negatives > 0 ? Total(negative) / static_cast<float>(negatives) : 0};
    std::uint8_t flags[kBlock] = {};
    for (i = 0; i < n; ++i) {
      const float sum = residual[i];
      flags[i] = sum < 0 ? 1 : 0;
      residual[i] = sum - (sum < 0 ? means.negative : means.positive);
    }
    for (i = 0; i < n; i += 8) {
      std::uint64_t word;  // eight bytes of 0 or 1, gathered in the highest one by a product
      std::memcpy(&word, flags + i, sizeof word);
      bits[i / 8] = static_cast<std::uint8_t>((word * 0x0102040810204080) >> 56);
    }
    return means;
  }
};

struct DecodeBlock {
  TRIREME_INLINE void Run(const std::uint8_t* bits, Means means, float* values, std::size_t n) {
    std::uint8_t flags[kBlock];
    for (std::size_t i = 0; i < n; i += 8) {
      // A copy of the byte for each bit, that bit alone.
      const std::uint64_t word = std::uint64_t{bits[i / 8]} * 0x0101010101010101 & 0x8040201008040201;
      std::memcpy(flags + i, &word, sizeof word);
    }
    for (std::size_t i = 0; i < n; ++i) values[i] = flags[i] != 0 ? means.negative : means.positive;
  }
};

class OneBit final : public Codec {
 public:
  std::string name() const override { return "onebit"; }
  std::size_t bytes(std::size_t values) const override {
    return Blocks(values) * sizeof(Means) + (values + 7) / 8;
  }

  void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const override {
    TRIREME_CHECK(out.size() == bytes(values.size()) && state.residual.size() == values.size());
    CheckSums(values, state.residual.span());
    std::byte* const bits = out.data() + Blocks(values.size()) * sizeof(Means);
    for (std::size_t first = 0; first < values.size(); first += kBlock) {
      const Means means = SimdCall<EncodeBlock>(values.data() + first, state.residual.data() + first,
                                                reinterpret_cast<std::uint8_t*>(bits + first / 8),
                                                std::min(kBlock, values.size() - first));
      std::memcpy(out.data() + first / kBlock * sizeof means, &means, sizeof means);
    }
  }

  void Decode(std::span<const std::byte> in, std::span<float> values) const override {
    CheckSize("onebit", in.size(), bytes(values.size()));
    const std::byte* const bits = in.data() + Blocks(values.size()) * sizeof(Means);
    for (std::size_t first = 0; first < values.size(); first += kBlock) {
      Means means;
      std::memcpy(&means, in.data() + first / kBlock * sizeof means, sizeof means);
      if (!std::isfinite(means.positive) || !std::isfinite(means.negative))
        Fail("a message compressed by onebit has means of {} and {}", means.positive, means.negative);
      SimdCall<DecodeBlock>(reinterpret_cast<const std::uint8_t*>(bits + first / 8), means,
                            values.data() + first, std::min(kBlock, values.size() - first));
    }
  }

 private:
  static std::size_t Blocks(std::size_t values) { return (values + kBlock - 1) / kBlock; }
};

}  // namespace

std::unique_ptr<Codec> MakeOneBitCodec() { return std::make_unique<OneBit>(); }

}  // namespace trireme
