#include "trireme/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {

double ScheduleFactor(ScheduleKind kind, double final_fraction, double progress) {
  const double p = std::clamp(progress, 0.0, 1.0);
  switch (kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kLinear:
      return 1 - p * (1 - final_fraction);
    case ScheduleKind::kCosine:
      return final_fraction + (1 - final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * p));
  }
  TRIREME_CHECK(false);
}

KlAdaptiveRate::KlAdaptiveRate(double initial, double desired_kl, double lowest, double highest)
    : desired_kl_(desired_kl),
      lowest_(lowest),
      highest_(highest),
      rate_(std::clamp(initial, lowest, highest)) {
  TRIREME_CHECK(0 < lowest && lowest <= highest);
  TRIREME_CHECK(0 < desired_kl);
}

void KlAdaptiveRate::Update(double kl) {
  constexpr double kFactor = 1.5;
  if (kl > 2 * desired_kl_) rate_ = std::max(rate_ / kFactor, lowest_);
  if (kl < desired_kl_ / 2) rate_ = std::min(rate_ * kFactor, highest_);
}

void KlAdaptiveRate::Save(StateWriter& writer, const std::string& scope) const {
  writer.PutValue<double>(scope + "/rate", rate_);
}

void KlAdaptiveRate::Load(const StateReader& reader, const std::string& scope) {
  const auto rate = reader.GetValue<double>(scope + "/rate");
  if (!(rate >= lowest_ && rate <= highest_)) {
    Fail("the saved learning rate {} is outside the bounds {} to {}", rate, lowest_, highest_);
  }
  rate_ = rate;
}

}  // namespace trireme
