// The default executor: towers on the processor, fused around libxsmm products (tower.h).
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/executor.h"
#include "trireme/nn/tower.h"

namespace trireme {

class FusedExecutor final : public Executor {
 public:
  // `network` outlives it.
  explicit FusedExecutor(const Network& network, Precision precision = Precision::kFp32);

  const Network& network() const override { return network_; }
  // As many as keep their activations in the second-level cache from forward to backward. A multiple of Tower::kChunk.
  int pass_size() const override { return pass_size_; }
  bool loss_scaled() const override { return NeedsLossScale(precision_); }
  std::unique_ptr<Tape> MakeTape(int capacity) const override;

 private:
  const Network& network_;
  Precision precision_;
  std::vector<Tower> towers_;
  int pass_size_;
};

}  // namespace trireme
