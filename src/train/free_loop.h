// Workers of one process that iterate on their own and meet, after whichever iteration each of them is in, for
// checkpoints and at the end of the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "trireme/store/schedule.h"
#include "trireme/train/topology.h"

namespace trireme {

// What the workers of such a run share, besides their parameters.
struct FreeWorkers {
  std::atomic<std::int64_t> steps{0};  // of all
  std::atomic<bool> meeting{false};    // all are to come together after their current iteration
  std::optional<Schedule> schedule;    // in which order they pull and push; none: as it comes
};

// `assign` sets the parameters of all; it is called while nobody pulls or pushes. All outlive the loop.
std::unique_ptr<WorkerLoop> MakeFreeLoop(Worker& worker, WorkerLinks& links, FreeWorkers& all,
                                         std::function<void(std::span<const float>)> assign);

}  // namespace trireme
