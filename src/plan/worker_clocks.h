// Who of a simulated server's workers may go on: the clock of a worker is the number of its pushes that were
// applied, and with a bound nobody is answered who is more than that many ahead of the slowest.
#pragma once

#include <optional>
#include <vector>

namespace trireme {

class WorkerClocks {
 public:
  WorkerClocks(int workers, std::optional<int> bound);

  // A push of the worker was applied. Returns who is to be answered now, in the order of their pushes:
  // usually this worker alone; nobody, or all those that had waited for it, with a bound.
  std::vector<int> Applied(int worker);
  // Pushes that the worker has made more than the slowest.
  int Ahead(int worker) const { return clocks_[worker] - slowest_; }

 private:
  bool MayGoOn(int worker) const { return !bound_ || Ahead(worker) <= *bound_; }

  std::optional<int> bound_;
  std::vector<int> clocks_;
  int slowest_ = 0;        // the lowest clock
  int at_slowest_;         // workers that have it
  std::vector<int> held_;  // workers whose answer waits, in order
};

}  // namespace trireme
