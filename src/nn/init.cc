#include "trireme/nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

// Eight partial sums, so that the loop vectorises.
struct DotKernel {
  [[gnu::always_inline]] static inline double Run(const double* a, const double* b, int n) {
    double sums[8] = {};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
      for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
    }
    for (; i < n; ++i) sums[0] += a[i] * b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
};

struct SubtractScaledKernel {
  [[gnu::always_inline]] static inline void Run(double* __restrict a, const double* __restrict b,
                                                double scale, int n) {
    for (int i = 0; i < n; ++i) a[i] -= scale * b[i];
  }
};

// Makes the rows of `q` ([count, length], count <= length) orthonormal by modified Gram-Schmidt. Rows are
// taken in blocks, so that an earlier row is read once for a whole block.
void Orthonormalise(std::vector<double>& q, int count, int length) {
  const auto row = [&](int r) { return q.data() + static_cast<std::size_t>(r) * length; };
  const auto dot = [&](int a, int b) {
    return SimdCall<DotKernel>(static_cast<const double*>(row(a)), static_cast<const double*>(row(b)),
                               length);
  };
  const auto subtract_projection = [&](int r, int s) {
    SimdCall<SubtractScaledKernel>(row(r), static_cast<const double*>(row(s)), dot(r, s), length);
  };
  constexpr int kBlock = 16;
  for (int first = 0; first < count; first += kBlock) {
    const int last = std::min(count, first + kBlock);
    for (int s = 0; s < first; ++s) {
      for (int r = first; r < last; ++r) subtract_projection(r, s);
    }
    for (int r = first; r < last; ++r) {
      for (int s = first; s < r; ++s) subtract_projection(r, s);
      const double norm = std::sqrt(dot(r, r));
      TRIREME_CHECK(norm > 0);
      for (int i = 0; i < length; ++i) row(r)[i] /= norm;
    }
  }
}

}  // namespace

double HiddenGain(Init init, Activation activation) {
  if (init == Init::kOrthogonal || activation != Activation::kTanh) return std::sqrt(2.0);
  return 5.0 / 3.0;
}

void InitialiseWeights(Init init, double gain, int inputs, int outputs, int rows, std::span<float> weights,
                       RandomStream& random) {
  if (init != Init::kOrthogonal) {
    const double limit =
        gain * (init == Init::kKaiming ? std::sqrt(3.0 / inputs) : std::sqrt(6.0 / (inputs + outputs)));
    for (float& w : weights) w = static_cast<float>(limit * (2.0 * random.NextUniform() - 1.0));
    return;
  }
  const int columns = static_cast<int>(weights.size()) / rows;
  const int count = std::min(rows, columns);
  const int length = std::max(rows, columns);
  std::vector<double> q(static_cast<std::size_t>(count) * length);
  for (double& value : q) value = random.NextNormal();
  Orthonormalise(q, count, length);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const double value = rows <= columns ? q[r * length + c] : q[c * length + r];
      weights[static_cast<std::size_t>(r) * columns + c] = static_cast<float>(gain * value);
    }
  }
}

}  // namespace trireme
