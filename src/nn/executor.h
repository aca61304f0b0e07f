// The boundary behind which a network is computed: on the processor (fused_executor.h), on a device, or by
// workers that split a model between them. Algorithms do not know which.
//
// Parameters and gradients are flat buffers in the host's memory, laid out by the Network. An executor makes
// tapes. A tape is one worker's: it has the memory for passes of up to `capacity` samples; Forward records on
// it, Backward plays back.
//
//   tape->SetParams(store.Pull());
//   for each pass of up to pass_size() samples, x: [n, inputs]
//     outputs = tape->Forward(tower, x, n);  // [n, outputs]
//     d_outputs = the gradient of the loss with respect to them
//     tape->Backward(tower, d_outputs, gradient);
//
// A tape holds the last pass of each tower; whoever needs two passes of one tower at a time takes two tapes.
// Calls are per pass, never per sample, and the same calls give the same bits. executor_conformance.h checks
// what every executor must do.
//
// Thread safety: an executor is immutable, and several threads may use it; it outlives its tapes. A tape
// belongs to one thread. Calls may block on whatever computes.
#pragma once

#include <memory>
#include <span>

#include "trireme/nn/network.h"

namespace trireme {

class Tape {
 public:
  virtual ~Tape() = default;

  // The parameters of all passes from now on: call it again whenever they have changed. They stay where they
  // are, and as they are, until the next call.
  virtual void SetParams(std::span<const float> params) = 0;
  virtual std::span<const float> params() const = 0;
  // Of executors that are loss_scaled(): what gradients between layers are multiplied with while they are in 16
  // bits, a power of two, 1 at first. What Backward gives is not scaled; it is not finite if the scale was too large.
  virtual void SetLossScale(float /*scale*/) {}

  // x: [n, inputs of the tower], n <= capacity. Returns its outputs, [n, outputs], valid until the tower's
  // next Forward or the next SetParams.
  virtual std::span<const float> Forward(std::size_t tower, const float* x, int n) = 0;
  // Back through the tower's last Forward since SetParams, whose x is still there. d_outputs: [n, outputs],
  // the gradient of the loss with respect to its outputs. Adds to the tower's part of `gradient`, which
  // begins with the layout of the parameters; d_x, if not null, receives the gradient with respect to x.
  virtual void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient,
                        float* d_x = nullptr) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Network& network() const = 0;
  // Samples that are best computed together: larger batches go through in passes of this many.
  virtual int pass_size() const = 0;
  // Whether gradients may come out as not finite because a tape's loss scale is too large.
  virtual bool loss_scaled() const { return false; }
  virtual std::unique_ptr<Tape> MakeTape(int capacity) const = 0;
};

}  // namespace trireme
