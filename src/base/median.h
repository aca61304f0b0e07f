#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme {

// The middle value, or the mean of the two middle ones; NaN values do not count. NaN when there is none.
inline double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace trireme
