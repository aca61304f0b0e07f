#include "trireme/rollout/normaliser.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {

Normaliser::Normaliser(int features, bool centred, float limit)
    : centred_(centred),
      limit_(limit),
      mean_(features),
      m2_(features),
      shift_(features),
      scale_(features, 1.0f) {}

void Normaliser::AddTo(std::span<double> sums, const float* x) const {
  TRIREME_CHECK(sums.size() == sums_size());
  sums[0] += 1;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double deviation = x[i] - mean_[i];
    sums[1 + 2 * i] += deviation;
    sums[2 + 2 * i] += deviation * deviation;
  }
}

// With d = x - mean over n new samples: the batch mean is mean + S1/n and its squared deviations S2 - S1^2/n;
// two groups merge as in Chan, Golub and LeVeque (1979).
void Normaliser::Merge(std::span<const double> totals) {
  const double n = totals[0];
  if (n == 0) return;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double delta = totals[1 + 2 * i] / n;
    // Never negative but by rounding, as for a feature that does not change.
    const double batch_m2 = std::max(0.0, totals[2 + 2 * i] - n * delta * delta);
    m2_[i] += batch_m2 + delta * delta * count_ * n / (count_ + n);
    mean_[i] += delta * n / (count_ + n);
  }
  count_ += n;
  UpdateScale();
}

void Normaliser::UpdateScale() {
  constexpr double kSmallest = 1e-8;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double variance = count_ > 0 ? m2_[i] / count_ : 1.0;
    shift_[i] = centred_ ? static_cast<float>(mean_[i]) : 0.0f;
    scale_[i] = static_cast<float>(1.0 / std::sqrt(variance + kSmallest));
  }
}

void Normaliser::Save(StateWriter& out, const std::string& scope) const {
  out.PutValue(scope + "/count", count_);
  out.Put<double>(scope + "/mean", mean_);
  out.Put<double>(scope + "/m2", m2_);
}

void Normaliser::Load(const StateReader& in, const std::string& scope) {
  count_ = in.GetValue<double>(scope + "/count");
  in.Get<double>(scope + "/mean", mean_);
  in.Get<double>(scope + "/m2", m2_);
  if (count_ > 0) UpdateScale();
}

}  // namespace trireme
