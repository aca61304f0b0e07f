// Where the parameters live: the one thing an algorithm knows about other workers.
//
// A worker pulls parameters, computes a gradient of its share of the work, and pushes it. What happens in
// between, and whether others take part, is the store's business; a store knows nothing of policies, rewards
// or layers.
//
// Thread safety: a store belongs to one worker. Pull, Push and Share may block on the other workers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/state.h"
#include "comm/communicator.h"
#include "optim/optimizer.h"

namespace trireme {

// How a gradient is to be applied.
struct UpdateRule {
  float learning_rate = 0;
  double max_grad_norm = 0;  // 0: no clipping
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // The current parameters. The view is valid until the next Pull or Push.
  virtual std::span<const float> Pull() = 0;

  // Hands over this worker's gradient sum. `gradient` may be longer than the parameters: the floats behind
  // them are statistics that travel along. On return `gradient` holds the sums over all workers that took
  // part, and the parameters have been updated. Returns the gradient's norm before clipping; a norm that is
  // not finite means that the parameters were left as they were.
  virtual double Push(std::span<float> gradient, const UpdateRule& rule) = 0;

  // values <- their sum over all workers that move in step (in a store without common steps: left as they
  // are).
  virtual void Share(std::span<double> values) = 0;

  // Parameters and optimizer, for checkpoints.
  virtual void Save(StateWriter& out) const = 0;
  virtual void Load(const StateReader& in) = 0;
};

// Every worker holds a replica; gradients are summed over all workers and each applies the same update. With
// a group of one this is the `local` store. `initial` are the parameters to start from, the same on all
// workers.
std::unique_ptr<ParameterStore> MakeAllReduceStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                   std::span<const float> initial);

}  // namespace trireme
