// The boundary behind which a network is computed: on the processor (fused_executor.h), on a device, or by
// workers that split a model between them. Algorithms do not know which.
//
// Parameters and gradients are flat buffers in the host's memory, laid out by the Network. An executor makes
// tapes. A tape is one worker's: it has the memory for passes of up to `capacity` samples; Forward records on
// it, Backward plays back.
//
//   tape->SetParams(store.Pull());
//   tape->AddGradient(samples, gradient);  // in passes, each: inputs, outputs, loss, gradient
//
// A batch of samples goes through in passes of up to pass_size(). How many samples each has, and whether the next one
// begins before the last is done, is the executor's business: samples are asked for, they do not come. Forward and
// Backward are the single steps, for acting and for gradients that are no loss over samples:
//
//   outputs = tape->Forward(tower, x, n);       // x: [n, inputs], outputs: [n, outputs]
//   tape->Backward(tower, d_outputs, gradient); // d_outputs: the gradient of the loss with respect to outputs
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

// Samples with a loss, for Tape::AddGradient. All towers read the same inputs.
class LossSamples {
 public:
  virtual ~LossSamples() = default;

  // How many there are.
  virtual int size() const = 0;
  // x of samples [first, first + n): [n, inputs], as it is until the next call. Not asked for where it is not needed,
  // and perhaps before the loss of earlier samples is.
  virtual const float* Inputs(int first, int n) = 0;
  // outputs[t]: of tower t for samples [first, first + n), [n, outputs]. Writes the gradient of the loss with respect
  // to them to d_outputs[t], and adds what else the samples contribute to. Called once for every sample, in their
  // order.
  virtual void Loss(int first, int n, std::span<const float* const> outputs,
                    std::span<float* const> d_outputs) = 0;
};

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
  // Adds the gradient of the loss of all samples, for all towers. The passes of Forward are then gone.
  virtual void AddGradient(LossSamples& samples, std::span<float> gradient) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Network& network() const = 0;
  // Samples that are best computed together: larger batches go through in passes of at most this many.
  virtual int pass_size() const = 0;
  // Whether gradients may come out as not finite because a tape's loss scale is too large.
  virtual bool loss_scaled() const { return false; }
  virtual std::unique_ptr<Tape> MakeTape(int capacity) const = 0;
};

}  // namespace trireme
