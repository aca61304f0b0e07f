// What codec.cc makes codecs with.
#pragma once

#include <memory>
#include <span>

#include "trireme/codec/codec.h"

namespace trireme {

std::unique_ptr<Codec> MakeFp16Codec();
std::unique_ptr<Codec> MakeBf16Codec();
std::unique_ptr<Codec> MakeInt8Codec();
std::unique_ptr<Codec> MakeOneBitCodec();
// `share`: of the values, in (0, 1].
std::unique_ptr<Codec> MakeTopKCodec(double share);
// `rank`: columns, from 1 to kMostPowerRank.
inline constexpr int kMostPowerRank = 64;
std::unique_ptr<Codec> MakePowerCodec(int rank);

// Throws Error when a sum is not finite, or so large that sums of many are not.
void CheckSums(std::span<const float> values, std::span<const float> residual);
// Throws Error when a message of the codec `name` has another size.
void CheckSize(const char* name, std::size_t size, std::size_t due);

}  // namespace trireme
