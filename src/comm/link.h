// What a way from one process to another is like, and what went over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>

#include "trireme/base/system.h"

namespace trireme {

struct ProcessLink {
  // Bytes of a message that tell bandwidth from latency: enough for that, few enough for slow links.
  static constexpr std::size_t kLarge = 256 * 1024;

  char to[80] = "";         // who is at the other end
  double latency_s = 0;     // of an empty message, one way
  double bytes_per_s = 0;   // beyond that
  std::uint64_t bytes = 0;  // so far, of messages that go one after the other
  std::uint64_t messages = 0;
  double waited_s = 0;  // for what comes from there

  bool measured() const { return bytes_per_s > 0; }
  // What the messages would have taken if nothing else took time.
  double estimate_s() const {
    return measured() ? static_cast<double>(messages) * latency_s + static_cast<double>(bytes) / bytes_per_s
                      : 0;
  }
  void SetName(std::string_view name);
};
static_assert(std::is_trivially_copyable_v<ProcessLink>);  // it travels

// Measures latency and bandwidth, such that together they explain the time of a large exchange. `exchange(n)`:
// n bytes go there, and then n bytes come back. Always makes the same exchanges, so that it can be called at
// both ends; then only the end that sends first knows how long they take.
void MeasureLink(ProcessLink& link, const std::function<void(std::size_t)>& exchange,
                 const std::function<double()>& now_s = MonotonicSeconds);

}  // namespace trireme
