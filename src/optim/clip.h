// Clipping a gradient by its global L2 norm. Pure functions; they neither allocate nor throw.
#pragma once

#include <span>

namespace trireme {

// The sum of squares, in double precision and in one fixed order: the same bits on every instruction set and
// for every alignment. Cannot overflow for finite elements; NaN or infinity among them gives NaN or infinity.
double SquaredNorm(std::span<const float> values);

// Scales `gradient` down to norm `max_norm` when it is longer; requires max_norm > 0. Returns the norm it
// had. A norm that is not finite is returned as it is and the gradient is left untouched: callers must look.
double ClipByGlobalNorm(std::span<float> gradient, double max_norm);

}  // namespace trireme
