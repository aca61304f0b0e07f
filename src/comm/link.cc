#include "trireme/comm/link.h"

#include <algorithm>
#include <limits>

namespace trireme {
namespace {

// Of several calls that which was disturbed least: whatever else a machine does only adds.
double LeastSeconds(int times, const std::function<double()>& now_s, const std::function<void()>& call) {
  double least_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const double begun_s = now_s();
    call();
    least_s = std::min(least_s, now_s() - begun_s);
  }
  return least_s;
}

}  // namespace

void ProcessLink::SetName(std::string_view name) {
  const std::size_t size = std::min(name.size(), sizeof(to) - 1);
  std::copy_n(name.begin(), size, to);
  to[size] = '\0';
}

void MeasureLink(ProcessLink& link, const std::function<void(std::size_t)>& exchange,
                 const std::function<double()>& now_s) {
  exchange(0);  // whatever happens only once
  exchange(ProcessLink::kLarge);
  const double empty_s = LeastSeconds(9, now_s, [&] { exchange(0); });
  const double large_s = LeastSeconds(3, now_s, [&] { exchange(ProcessLink::kLarge); });
  link.latency_s = empty_s / 2;
  link.bytes_per_s = 2 * static_cast<double>(ProcessLink::kLarge) / std::max(large_s - empty_s, 1e-6);
}

}  // namespace trireme
