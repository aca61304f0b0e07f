// Learning rates over the course of training.
#pragma once

#include <string>

#include "trireme/base/config.h"
#include "trireme/base/state.h"

namespace trireme {

enum class ScheduleKind { kConstant, kLinear, kCosine };
inline constexpr EnumName<ScheduleKind> kScheduleNames[] = {
    {"constant", ScheduleKind::kConstant},
    {"linear", ScheduleKind::kLinear},
    {"cosine", ScheduleKind::kCosine},
};

// The factor for the initial rate at `progress`, the share of training done (clamped to [0, 1]): 1 at the
// start, `final_fraction` at the end, along a line or half a cosine; always 1 for constant. A pure function.
double ScheduleFactor(ScheduleKind kind, double final_fraction, double progress);

// A rate that keeps the policy's change per update near a desired KL divergence: divided by 1.5 when the last
// update moved more than twice as far, multiplied by 1.5 when it moved less than half as far, within bounds.
// A NaN divergence leaves it alone. Not thread safe.
class KlAdaptiveRate {
 public:
  // Requires 0 < lowest <= highest and 0 < desired_kl; the initial rate is clamped to the bounds.
  KlAdaptiveRate(double initial, double desired_kl, double lowest = 1e-5, double highest = 1e-2);

  double rate() const { return rate_; }
  void Update(double kl);

  void Save(StateWriter& writer, const std::string& scope) const;
  // Throws Error when the section is missing or its rate is outside the bounds.
  void Load(const StateReader& reader, const std::string& scope);

 private:
  double desired_kl_;
  double lowest_;
  double highest_;
  double rate_;
};

}  // namespace trireme
