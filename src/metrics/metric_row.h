// What one iteration of a run measured: a step, the wall time, and named numbers in the order they were set.
//
// NaN means "not measured in this iteration" (no evaluation was due, no episode ended). Thread safety: none;
// a row belongs to whoever fills it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

class MetricRow {
 public:
  MetricRow() = default;
  // `step` counts environment steps done so far, `wall_s` seconds of training, earlier parts of a resumed run
  // included.
  MetricRow(std::int64_t step, double wall_s) : step_(step), wall_s_(wall_s) {}

  // Adds `name`, or replaces its value. Names are UTF-8; "step" and "wall_s" are taken by the row itself.
  void Set(std::string_view name, double value) {
    TRIREME_CHECK(name != "step" && name != "wall_s");
    for (auto& [known, old] : values_) {
      if (known == name) {
        old = value;
        return;
      }
    }
    values_.emplace_back(name, value);
  }

  // NaN when the row has no such name.
  double Get(std::string_view name) const {
    for (const auto& [known, value] : values_) {
      if (known == name) return value;
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  std::int64_t step() const { return step_; }
  double wall_s() const { return wall_s_; }
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }

 private:
  std::int64_t step_ = 0;
  double wall_s_ = 0;
  std::vector<std::pair<std::string, double>> values_;
};

}  // namespace trireme
