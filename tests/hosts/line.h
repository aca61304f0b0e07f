// One direction of a cable: how long frames take on it.
//
// A frame waits until the ones before it have left, leaves at the bandwidth of the line, and arrives after
// its latency. Time is given to it, so that it can be tested without any. Not thread safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace trireme::testing {

using Time = std::chrono::steady_clock::time_point;

// What a cable is like, in each of its two directions.
struct Cable {
  std::chrono::nanoseconds latency{0};
  double bytes_per_s = 1e12;
  std::size_t queue_bytes = 1 << 20;  // that may wait for the ones before them; more are dropped
};

class Line {
 public:
  explicit Line(const Cable& cable) : cable_(cable) {}

  // When a frame that is handed over `now` arrives; nothing when too many are waiting. Calls come in order of
  // time, and so do arrivals.
  std::optional<Time> Send(Time now, std::size_t bytes) {
    const Time begin = std::max(now, free_);
    const std::chrono::duration<double> wait = begin - now;
    if (wait.count() * cable_.bytes_per_s > static_cast<double>(cable_.queue_bytes)) return std::nullopt;
    const std::chrono::duration<double> length(static_cast<double>(bytes) / cable_.bytes_per_s);
    free_ = begin + std::chrono::ceil<std::chrono::nanoseconds>(length);
    return free_ + cable_.latency;
  }

 private:
  Cable cable_;
  Time free_{};  // when the last frame has left
};

}  // namespace trireme::testing
