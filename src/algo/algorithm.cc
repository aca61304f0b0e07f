#include "trireme/algo/algorithm.h"

#include <cmath>

#include "trireme/optim/clip.h"

namespace trireme {

void CheckFinite(double value, const char* what) {
  if (!std::isfinite(value)) Fail("training diverged: {} is not finite. Try a smaller learning_rate.", what);
}

void CheckFinite(std::span<const float> params) { CheckFinite(SquaredNorm(params), "a parameter"); }

}  // namespace trireme
