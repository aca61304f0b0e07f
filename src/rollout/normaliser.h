// Running mean and variance per feature, and (x - mean) / std.
//
// Statistics are frozen while experience is collected and merged once an iteration: every shard contributes
// sums of deviations from the current mean, the sums are added over all shards in a fixed order, and every
// worker merges the same totals. So the result does not depend on the number of workers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/state.h"

namespace trireme {

class Normaliser {
 public:
  // `centred`: whether the mean is subtracted (observations) or only the scale divided out (returns).
  Normaliser(int features, bool centred, float limit);

  // y = clamp((x - mean) / std, +-limit), feature by feature.
  void Apply(const float* x, float* y) const {
    for (std::size_t i = 0; i < mean_.size(); ++i) y[i] = Clamp((x[i] - shift_[i]) * scale_[i]);
  }

  // The same of n rows, in place.
  void ApplyToRows(float* rows, int n) const {
    for (int i = 0; i < n; ++i, rows += mean_.size()) Apply(rows, rows);
  }

  float Scale(std::size_t feature) const { return scale_[feature]; }

  // Doubles that one shard's sums take: count, then sum and sum of squares per feature.
  std::size_t sums_size() const { return 1 + 2 * mean_.size(); }
  // Adds one sample's deviations from the current mean to `sums`.
  void AddTo(std::span<double> sums, const float* x) const;
  // Takes in the totals over all shards.
  void Merge(std::span<const double> totals);

  void Save(StateWriter& out, const std::string& scope) const;
  void Load(const StateReader& in, const std::string& scope);

 private:
  float Clamp(float x) const { return x > limit_ ? limit_ : x < -limit_ ? -limit_ : x; }
  void UpdateScale();

  bool centred_;
  float limit_;
  double count_ = 0;
  std::vector<double> mean_, m2_;     // m2: sum of squared deviations
  std::vector<float> shift_, scale_;  // what Apply uses
};

}  // namespace trireme
