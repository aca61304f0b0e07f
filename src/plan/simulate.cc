#include "trireme/plan/simulate.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/plan/engine.h"
#include "trireme/plan/ways.h"

namespace trireme {

std::string WayName(Way way) {
  for (const EnumName<Way>& row : kWayNames) {
    if (row.value == way) return std::string(row.name);
  }
  TRIREME_CHECK(false);
  return "";
}

int NoticesBefore(const PlanConstants& constants, int round) {
  const auto until = [&](int rounds) { return std::floor(constants.notices_per_round * rounds + 1e-9); };
  return static_cast<int>(until(round + 1) - until(round));
}

Outcome Simulate(const PlanConstants& constants, const Scenario& scenario) {
  switch (scenario.way) {
    case Way::kAllReduce:
      return SimulateAllReduce(constants, scenario);
    case Way::kServerSync:
    case Way::kAsync:
    case Way::kSsp:
      return SimulateServers(constants, scenario);
    case Way::kShared:
      return SimulateShared(constants, scenario);
  }
  TRIREME_CHECK(false);
  return {};
}

}  // namespace trireme
