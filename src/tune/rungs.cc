#include "trireme/tune/rungs.h"

#include <algorithm>
#include <cmath>

namespace trireme {

std::vector<std::int64_t> RungSteps(std::int64_t steps, std::int64_t least) {
  std::vector<std::int64_t> rungs;
  for (std::int64_t rung = steps / kReduction; rung >= std::max<std::int64_t>(1, least) && rungs.size() < 4;
       rung /= kReduction)
    rungs.insert(rungs.begin(), rung);
  return rungs;
}

bool GoesOn(double value, std::span<const double> others) {
  if (std::isnan(value)) return false;
  const auto better = std::ranges::count_if(others, [value](double other) { return other < value; });
  const auto places =
      std::max<std::ptrdiff_t>(1, static_cast<std::ptrdiff_t>(others.size() + 1) / kReduction);
  return better < places;
}

// A trial of bracket b of n takes about 3^b / 3^n of all steps, when one of three goes on at each rung; so shares fall with
// (n + 1) / (n + 1 - b) 3^-b, and come in whole numbers for the last.
int BracketOf(int trial, int rungs) {
  std::vector<int> shares;
  int all = 0;
  for (int b = 0; b <= rungs; ++b) {
    const double share = static_cast<double>(rungs + 1) / (rungs + 1 - b) * std::pow(kReduction, rungs - b);
    shares.push_back(std::max(1, static_cast<int>(std::lround(share / (rungs + 1)))));
    all += shares.back();
  }
  // Spread evenly: place t of the round has bracket b where the running shares say so.
  int place = static_cast<int>((static_cast<std::int64_t>(trial) * 61) % all);
  for (int b = 0; b < rungs; ++b) {
    if (place < shares[static_cast<std::size_t>(b)]) return b;
    place -= shares[static_cast<std::size_t>(b)];
  }
  return rungs;
}

}  // namespace trireme
