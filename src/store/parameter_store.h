// Where the parameters live: the one thing an algorithm knows about other workers.
//
// A worker pulls parameters, computes a gradient of its share of the work, and pushes it. What happens in
// between, and whether others take part, is the store's business; a store knows nothing of policies, rewards
// or layers.
//
// Two families. In a synchronous store the workers move in step: a push waits for all and every worker sees
// the same parameters. In an asynchronous store a worker moves on its own: its push is applied at once, to
// parameters that others may have changed since its pull.
//
// Thread safety: a store belongs to one worker. Pull, Push and Share may block on the other workers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/state.h"
#include "trireme/comm/communicator.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/groups.h"
#include "trireme/optim/optimizer.h"

namespace trireme {

class GradientSum;

// How a gradient is to be applied. Groups are parameters with a rate, and perhaps a norm, of their own
// (optim/groups.h). Workers in step give the same groups.
struct UpdateRule {
  float learning_rate = 0;
  double max_grad_norm = 0;  // 0: no clipping
  ParameterGroups groups = {};
};

// How old the parameters were that gradients were computed with: the number of updates by others between a
// worker's pull and its push.
struct Staleness {
  static constexpr std::size_t kBuckets = 32;       // 0, 1, ..., 30, and 31 or more
  std::array<std::uint64_t, kBuckets> pushes = {};  // by staleness
  std::uint64_t sum = 0, most = 0;

  void Add(std::uint64_t versions);
  Staleness& operator+=(const Staleness& other);
  std::uint64_t count() const;
  double mean() const;  // 0 when there was no push
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // Brings the parameters up to date. The view is valid until the next Pull, Push or Refresh.
  virtual std::span<const float> Pull() = 0;
  // The parameters as this worker saw them last: after its last Pull, or as its last Push left them.
  virtual std::span<const float> params() const = 0;
  // Hands over this worker's gradient sum. `gradient` may be longer than the parameters: the floats behind
  // them are statistics that travel along. On return the statistics are sums over all workers that took part,
  // the gradient itself is of no use any more, and the parameters have been updated. Returns the gradient's
  // norm before clipping; a norm that is not finite means that the parameters were left as they were.
  virtual double Push(std::span<float> gradient, const UpdateRule& rule) = 0;

  // From now on a gradient may be not finite now and then (optim/loss_scale.h). Its update is then left out, by all
  // workers in step alike; without this call it may end the run. All of them call it, or none.
  virtual void ExpectOverflow() {}

  // values <- their sum over all workers that move in step (in an asynchronous store: left as they are).
  virtual void Share(std::span<double> values) = 0;
  // params() <- the newest parameters, outside the course of training (for evaluations).
  virtual void Refresh() = 0;

  // What its pulls and pushes have cost beyond what its communicator counts, and how stale they were.
  virtual Traffic traffic() const = 0;
  virtual Staleness staleness() const = 0;
  // The norm of what a codec has not sent yet of this worker's gradients; 0 without one.
  virtual double ResidualNorm() const { return 0; }

  // Parameters and optimizer, for checkpoints.
  virtual void Save(StateWriter& out) const = 0;
  virtual void Load(const StateReader& in) = 0;
  // What only this worker of those in step holds, for a checkpoint to which all of them give theirs: nothing, unless
  // a store says otherwise. Once the worker knows its rank it loads its own, or what it is due where their number
  // has changed. Returns a line for people where that is not exactly what was saved. Throws Error.
  virtual void SaveOwn(StateWriter& /*out*/) const {}
  virtual std::string LoadOwn(const StateReader& /*in*/) { return ""; }
};

// The section of a checkpoint with the parameters that the optimizer works on, where workers hold others, which
// they were told by a codec.
inline constexpr const char* kExactParams = "exact_params";

// Synchronous. Every worker holds a replica; gradients are summed over all workers and each applies the same
// update. With a group of one this is the `local` store. `initial` are the parameters to start from, the same on
// all workers. `sum`: how gradients are summed (gradient_sum.h); without it, as they are.
std::unique_ptr<ParameterStore> MakeAllReduceStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                   std::span<const float> initial,
                                                   std::unique_ptr<GradientSum> sum);
// `norms`: where these parameters are a part of those of a network that others hold, too; it outlives the store.
std::unique_ptr<ParameterStore> MakeAllReduceStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                   std::span<const float> initial,
                                                   NormMeasure* norms = nullptr);

// In step, but parameters are exchanged instead of gradients: a worker applies what it pushes to its own copy, as if
// its gradient, scaled to the work of all, were that of all; after every `local_steps` pushes, parameters and moments
// of all workers are averaged. Statistics behind gradients, and what is shared, are still summed at once over all
// workers, so that whatever is decided by them is decided alike.
//
// Between two averages workers hold different parameters. Refresh() shows the average, which changes nothing, and
// is for all workers to call together, before Save() too; Pull() shows the worker's own again.
std::unique_ptr<ParameterStore> MakeLocalStepsStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                    std::span<const float> initial, int local_steps);

}  // namespace trireme
