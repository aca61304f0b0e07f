// An executor of workers that hold different layers of a network: stage 0 the first ones of every tower, the last stage
// the heads. All members of the group make the same calls with the same numbers.
//
// Outputs reach every member, so acting and losses are the same everywhere, with all that a loss notes and adds to free
// vectors. AddGradient cuts a batch into micro-batches and lets them follow one another, one forward and one backward in
// turn (Narayanan et al. 2019, PipeDream-1F1B; arXiv:2104.04473): stage s of S begins with S - 1 - s forward passes, then
// takes the gradient of the oldest after each further one, so at most S - s micro-batches have their activations there.
//
//   stage 0   F0 F1 -- B0 F2 B1 F3 B2 -- B3
//   stage 1      F0 B0 F1 B1 F2 B2 F3 B3
//
// Micro-batches are whole chunks of Tower::kChunk samples, taken in order: every sum has the terms of a worker that
// computes alone, in the same order, and so its bits.
//
// While a stage waits it is idle, the bubble. With m micro-batches that take equally long everywhere its share is
// (S - 1) / (m + S - 1).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/comm/peer_communicator.h"
#include "trireme/nn/executor.h"
#include "trireme/nn/tower.h"
#include "trireme/split/network_parts.h"

namespace trireme {

// How a stage spent the time of its AddGradient calls.
struct PipelineTimes {
  double total_s = 0, idle_s = 0;
  std::uint64_t micro_batches = 0, batches = 0;
  int stages = 0;  // 0: no pipeline

  double bubble() const { return total_s > 0 ? idle_s / total_s : 0; }
  // What the formula says, over all batches.
  double expected_bubble() const {
    const double slots = static_cast<double>(micro_batches) + static_cast<double>(batches) * (stages - 1);
    return slots > 0 ? static_cast<double>(batches) * (stages - 1) / slots : 0;
  }
};

class PipelineExecutor final : public Executor {
 public:
  // All outlive it. `share` is of a pipeline; `group` is its group, and `times`, which all tapes add to, the caller's.
  PipelineExecutor(const NetworkShare& share, PeerCommunicator& group, PipelineTimes& times);

  const Network& network() const override { return share_.network(); }
  int pass_size() const override { return pass_size_; }
  std::unique_ptr<Tape> MakeTape(int capacity) const override;

 private:
  const NetworkShare& share_;
  PeerCommunicator& group_;
  PipelineTimes& times_;
  std::vector<Tower> towers_;  // of this stage
  int pass_size_;
};

}  // namespace trireme
