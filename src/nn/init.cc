#include "nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace trireme {
namespace {

// Rows of `q` ([count, length], count <= length) made orthonormal by modified Gram-Schmidt, twice for
// accuracy.
void Orthonormalise(std::vector<double>& q, int count, int length) {
  const auto dot = [&](int a, int b) {
    double sum = 0;
    for (int i = 0; i < length; ++i) sum += q[a * length + i] * q[b * length + i];
    return sum;
  };
  for (int pass = 0; pass < 2; ++pass) {
    for (int r = 0; r < count; ++r) {
      for (int s = 0; s < r; ++s) {
        const double along = dot(r, s);
        for (int i = 0; i < length; ++i) q[r * length + i] -= along * q[s * length + i];
      }
      const double norm = std::sqrt(dot(r, r));
      CHECK(norm > 0);
      for (int i = 0; i < length; ++i) q[r * length + i] /= norm;
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
