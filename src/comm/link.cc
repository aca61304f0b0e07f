#include "trireme/comm/link.h"

#include <algorithm>
#include <vector>

#include "trireme/base/system.h"

namespace trireme {
namespace {

// Enough to tell a link's bandwidth from its latency, little enough for slow links.
constexpr std::size_t kLarge = 256 * 1024;

double MedianSeconds(int times, const std::function<void()>& call) {
  std::vector<double> seconds(times);
  for (double& taken : seconds) {
    const double begun_s = MonotonicSeconds();
    call();
    taken = MonotonicSeconds() - begun_s;
  }
  std::ranges::nth_element(seconds, seconds.begin() + times / 2);
  return seconds[times / 2];
}

}  // namespace

void ProcessLink::SetName(std::string_view name) {
  const std::size_t size = std::min(name.size(), sizeof(to) - 1);
  std::copy_n(name.begin(), size, to);
  to[size] = '\0';
}

void MeasureLink(ProcessLink& link, const std::function<void(std::size_t)>& exchange) {
  exchange(0);  // whatever happens only once
  exchange(kLarge);
  const double empty_s = MedianSeconds(9, [&] { exchange(0); });
  const double large_s = MedianSeconds(3, [&] { exchange(kLarge); });
  link.latency_s = empty_s / 2;
  link.bytes_per_s = 2 * static_cast<double>(kLarge) / std::max(large_s - empty_s, 1e-6);
}

}  // namespace trireme
