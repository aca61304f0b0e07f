// Numbers of 16 bits: fp16 (IEEE binary16: 11 significant bits, up to 65504) and bf16 (8 significant bits,
// the range of float). Rounded to nearest, ties to even, by integer operations that every instruction set
// has, so that all of them give the same bits.
//
// Each format has two pairs of conversions: To and From keep infinities and NaNs, and what is too large for
// the format becomes infinite; ToFinite and FromFinite are for numbers that are finite, and what is too large
// becomes the largest.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "trireme/base/config.h"
#include "trireme/base/simd.h"

namespace trireme {

// How many bits numbers have somewhere.
enum class Precision { kFp32, kBf16, kFp16 };
inline constexpr EnumName<Precision> kPrecisionNames[] = {
    {"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}, {"fp16", Precision::kFp16}};
inline std::string_view NameOf(Precision precision) {
  return kPrecisionNames[static_cast<std::size_t>(precision)].name;
}

// Between floats and a format of 16 bits, by its To and From. Require a precision of 16 bits. Neither side needs
// to be aligned.
void ToHalf(Precision precision, const float* from, std::size_t n, std::byte* to);
void FromHalf(Precision precision, const std::byte* from, std::size_t n, float* to);

TRIREME_INLINE std::uint32_t FloatBits(float value) { return std::bit_cast<std::uint32_t>(value); }
TRIREME_INLINE float BitsFloat(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline constexpr std::uint32_t kInfiniteFloat = 0x7F800000;

struct Fp16 {
  static constexpr const char* kName = "fp16";
  static constexpr std::uint32_t kRebias = 112u << 23;          // from an exponent of 15 to one of 127
  static constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  static constexpr std::uint32_t kLargest = 0x477FE000;         // 65504
  static constexpr std::uint32_t kTooLarge = 0x477FF000;        // 65520: rounds to more than the largest
  static constexpr std::uint16_t kNotFinite = 0x7C00;           // exponents of infinities and NaNs

  // Below the normal numbers all are multiples of 2^-24: an addition of 1/2 rounds to these.
  TRIREME_INLINE std::uint16_t ToFinite(float value) {
    const std::uint32_t bits = FloatBits(value), sign = bits & 0x80000000;
    const std::uint32_t size = bits ^ sign;
    return static_cast<std::uint16_t>(Round(size > kLargest ? kLargest : size) | (sign >> 16));
  }
  TRIREME_INLINE float FromFinite(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16, size = half & 0x7FFF;
    return BitsFloat(Expand(size) | sign);
  }

  TRIREME_INLINE std::uint16_t To(float value) {
    const std::uint32_t bits = FloatBits(value), sign = bits & 0x80000000;
    const std::uint32_t size = bits ^ sign;
    const std::uint32_t special = size > kInfiniteFloat ? 0x7E00 : kNotFinite;
    const std::uint32_t finite = Round(size < kTooLarge ? size : 0);
    return static_cast<std::uint16_t>((size < kTooLarge ? finite : special) | (sign >> 16));
  }
  TRIREME_INLINE float From(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16, size = half & 0x7FFF;
    const std::uint32_t special = kInfiniteFloat | (size << 13);
    return BitsFloat((size < kNotFinite ? Expand(size) : special) | sign);
  }

 private:
  TRIREME_INLINE std::uint32_t Round(std::uint32_t size) {
    const std::uint32_t normal = (size - kRebias + 0xFFF + ((size >> 13) & 1)) >> 13;
    const std::uint32_t small = FloatBits(BitsFloat(size) + 0.5f) - FloatBits(0.5f);
    return size < kSmallestNormal ? small : normal;
  }
  TRIREME_INLINE std::uint32_t Expand(std::uint32_t size) {
    const float small = static_cast<float>(static_cast<std::int32_t>(size)) * 0x1p-24f;
    const std::uint32_t normal = (size << 13) + kRebias;
    return size < 0x400 ? FloatBits(small) : normal;
  }
};

struct Bf16 {
  static constexpr const char* kName = "bf16";
  static constexpr std::uint32_t kLargest = 0x7F7F0000;
  static constexpr std::uint16_t kNotFinite = 0x7F80;

  TRIREME_INLINE std::uint16_t ToFinite(float value) {
    const std::uint32_t bits = FloatBits(value), sign = bits & 0x80000000;
    const std::uint32_t size = bits ^ sign;
    return static_cast<std::uint16_t>(Round(size > kLargest ? kLargest : size) | (sign >> 16));
  }
  TRIREME_INLINE float FromFinite(std::uint16_t half) { return From(half); }

  TRIREME_INLINE std::uint16_t To(float value) {
    const std::uint32_t bits = FloatBits(value), sign = bits & 0x80000000;
    const std::uint32_t size = bits ^ sign;
    return static_cast<std::uint16_t>((size > kInfiniteFloat ? 0x7FC0 : Round(size)) | (sign >> 16));
  }
  TRIREME_INLINE float From(std::uint16_t half) { return BitsFloat(static_cast<std::uint32_t>(half) << 16); }

 private:
  TRIREME_INLINE std::uint32_t Round(std::uint32_t size) {
    return (size + 0x7FFF + ((size >> 16) & 1)) >> 16;
  }
};

}  // namespace trireme
