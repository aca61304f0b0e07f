// An executor of workers that split the layers of a network between them (tensor_tower.h). All members of the group make
// the same calls with the same numbers; each has the parameters and gradients of its part.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/executor.h"
#include "trireme/split/network_parts.h"
#include "trireme/split/tensor_tower.h"

namespace trireme {

class TensorExecutor final : public Executor {
 public:
  // `share`, which outlives it, is of a tensor split.
  explicit TensorExecutor(const NetworkShare& share);

  const Network& network() const override { return share_.network(); }
  int pass_size() const override { return pass_size_; }
  std::unique_ptr<Tape> MakeTape(int capacity) const override;

 private:
  const NetworkShare& share_;
  std::vector<TensorTower> towers_;
  int pass_size_;
};

}  // namespace trireme
