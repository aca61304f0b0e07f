#include "trireme/codec/codec.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

constexpr CodecEntry kCodecs[] = {
    {"fp16", nullptr, "16-bit floats with 11 bits of precision, up to 65504"},
    {"bf16", nullptr, "16-bit floats with 8 bits of precision and the range of 32-bit ones"},
    {"int8", nullptr, "127 steps to either side of zero, the longest of every 256 values being the last"},
    {"onebit", nullptr, "signs; the mean of the positive and of the negative ones of every 256 values"},
    {"topk", "SHARE", "the largest values only: topk=0.01 is a hundredth of them"},
    {"powersgd", "RANK", "a product of two narrow matrices of RANK columns: powersgd=4"},
};

// Sums of such values overflow nowhere here. Infinities and NaNs are larger.
constexpr std::uint32_t kTooLarge = (127u + 100) << 23;

struct FindTooLarge {
  TRIREME_INLINE bool Run(const float* values, const float* residual, std::size_t n) {
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const float sum = values[i] + residual[i];
      std::uint32_t bits;
      std::memcpy(&bits, &sum, sizeof bits);
      bits &= 0x7FFFFFFF;
      most = bits > most ? bits : most;
    }
    return most >= kTooLarge;
  }
};

}  // namespace

CodecState Codec::MakeState(std::size_t values) const {
  return {AlignedBuffer<float>(values), AlignedBuffer<float>(memory(values))};
}

std::span<const CodecEntry> Codecs() { return kCodecs; }

std::unique_ptr<Codec> MakeCodec(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string argument(equals == text.npos ? "" : text.substr(equals + 1));
  const auto number = [&](double from, double to, bool whole) {
    const std::optional<double> value = ParseDouble(argument);
    if (!value || !(*value >= from && *value <= to) || (whole && *value != static_cast<int>(*value))) {
      Fail("'{}': say {}=N with {} from {} to {}", text, name, whole ? "a whole number" : "a number", from,
           to);
    }
    return *value;
  };
  if (name == "topk") return MakeTopKCodec(number(1e-6, 1, false));
  if (name == "powersgd") return MakePowerCodec(static_cast<int>(number(1, kMostPowerRank, true)));
  if (equals == text.npos) {
    if (name == "fp16") return MakeFp16Codec();
    if (name == "bf16") return MakeBf16Codec();
    if (name == "int8") return MakeInt8Codec();
    if (name == "onebit") return MakeOneBitCodec();
  }
  std::string known;
  for (const CodecEntry& entry : kCodecs) {
    known += fmt::format("{}{}{}", known.empty() ? "" : ", ", entry.name,
                         entry.argument ? fmt::format("={}", entry.argument) : "");
  }
  Fail("there is no way to compress called '{}': there are {}", text, known);
}

std::unique_ptr<Codec> MakeCodecOrNone(std::string_view text) {
  return text == kNoCodec ? nullptr : MakeCodec(text);
}

void CheckSums(std::span<const float> values, std::span<const float> residual) {
  if (SimdCall<FindTooLarge>(values.data(), residual.data(), values.size()))
    Fail("values that are not finite, or beyond 2^100, cannot be compressed: training has diverged");
}

void CheckSize(const char* name, std::size_t size, std::size_t due) {
  if (size != due) Fail("a message compressed by {} has {} bytes where {} are due", name, size, due);
}

}  // namespace trireme
