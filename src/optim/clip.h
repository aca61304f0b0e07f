// Clipping a gradient by its global L2 norm. Pure functions; they neither allocate nor throw.
#pragma once

#include <cstddef>
#include <span>

namespace trireme {

// The sum of squares, in double precision and in one fixed order: the same bits on every instruction set and
// for every alignment. Cannot overflow for finite elements; NaN or infinity among them gives NaN or infinity.
double SquaredNorm(std::span<const float> values);

// SquaredNorm() adds blocks of this many elements, one after the other. Whoever holds a part of a vector that
// begins at a block can give the sums of its blocks to someone who adds them all up: the same bits.
inline constexpr std::size_t kNormBlock = 1024;
inline std::size_t NormBlocks(std::size_t size) { return (size + kNormBlock - 1) / kNormBlock; }
// Requires sums.size() == NormBlocks(values.size()).
void SquaredNorms(std::span<const float> values, std::span<double> sums);

// By what a gradient of norm `norm` is to be scaled for it not to exceed max_norm (0: no limit).
float ClipScale(double norm, double max_norm);

// Scales `gradient` down to norm `max_norm` when it is longer; requires max_norm > 0. Returns the norm it
// had. A norm that is not finite is returned as it is and the gradient is left untouched: callers must look.
double ClipByGlobalNorm(std::span<float> gradient, double max_norm);

}  // namespace trireme
