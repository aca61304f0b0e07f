// The `shared` store: asynchronous workers on one parameter buffer, without locks (Recht et al. 2011,
// arXiv:1106.5730; Mnih et al. 2016, arXiv:1602.01783).
//
// A pull copies the shared parameters; a push reads them again, applies the optimizer, and writes them back,
// tile by tile. Two workers that push at the same moment may overwrite each other's change of a tile: that is
// the price of not waiting. With one worker the results are those of the local store, bit for bit.
//
// The optimizer's moments are either shared too, so that every gradient of every worker feeds them, or each
// worker has its own. The two shared moments of an element travel together: Adam divides one by the root of
// the other, and a pair of which only one has seen a gradient could move a parameter by m / eps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/store/atomic_floats.h"
#include "trireme/store/parameter_store.h"
#include "trireme/store/schedule.h"

namespace trireme {

// What the workers share. Must outlive their stores. Thread safety: everything is atomic.
class SharedParameters {
 public:
  SharedParameters(const OptimizerSettings& optimizer, bool share_moments, std::span<const float> initial);

  std::size_t size() const { return params_.size(); }
  // Replaces the parameters. Requires that no worker pulls or pushes meanwhile.
  void Assign(std::span<const float> params) { params_.Store(0, params); }

 private:
  friend class SharedStore;
  OptimizerRule rule_;
  AtomicFloats params_;
  AtomicFloats moments_;                    // element by element; empty when each worker has its own
  std::atomic<std::uint64_t> versions_{0};  // pushes so far
};

// The store of worker `rank`. With a schedule (which may be null), pulls and pushes happen in its order.
std::unique_ptr<ParameterStore> MakeSharedStore(SharedParameters& shared, int rank, Schedule* schedule);

}  // namespace trireme
