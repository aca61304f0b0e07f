#include "trireme/plan/worker_clocks.h"

#include <algorithm>

namespace trireme {

WorkerClocks::WorkerClocks(int workers, std::optional<int> bound)
    : bound_(bound), clocks_(workers), at_slowest_(workers) {}

std::vector<int> WorkerClocks::Applied(int worker) {
  const bool was_slowest = clocks_[worker]++ == slowest_;
  held_.push_back(worker);
  if (was_slowest && --at_slowest_ == 0) {
    slowest_ = *std::ranges::min_element(clocks_);
    at_slowest_ = static_cast<int>(std::ranges::count(clocks_, slowest_));
  }
  std::vector<int> released, still_held;
  for (const int other : held_) (MayGoOn(other) ? released : still_held).push_back(other);
  held_ = std::move(still_held);
  return released;
}

}  // namespace trireme
