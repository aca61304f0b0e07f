// What a round is made of, measured inside one worker: the algorithm runs really, against a store that watches.
//
// A worker with all of the work and one with a single shard of it, whose store answers as if the others had sent
// the same, give the two terms of a round's time. How rounds vary is taken from the whole worker: each round relative to the
// median of its position in the iteration (the first push of an iteration may come after a long collection, in
// every worker alike: that is no variation to wait for). Times are processor times: what else runs on this
// machine would not run on a cluster.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/plan/constants.h"
#include "trireme/store/parameter_store.h"
#include "trireme/train/run_config.h"

namespace trireme {

// Processor time of the calling thread.
double ThreadSeconds();

// Hands every call to another store and notes how much time lies between the calls, which is what a worker
// computes, and how much in pushes. All calls come from the thread that computes. `parts`: pushes and shares
// are answered as if so many workers had sent the same.
class TimingStore final : public ParameterStore {
 public:
  TimingStore(std::unique_ptr<ParameterStore> store, int parts);

  // What the worker computed before a push.
  struct Round {
    int position;  // in its iteration: 0, 1, ...
    double compute_s;
  };
  std::vector<Round> rounds;
  double push_s = 0;            // spent in pushes
  std::size_t push_floats = 0;  // of the last push
  std::uint64_t shares = 0, share_bytes = 0;

  // Forgets what was measured so far. The time until Resume() counts as nothing.
  void Reset();
  void Pause() { computed_s_ += ThreadSeconds() - since_s_; }
  void Resume() { since_s_ = ThreadSeconds(); }
  // The next push is the first of an iteration.
  void BeginIteration() { position_ = 0; }
  double MeanRound() const;  // throws Error if there was none

  std::span<const float> Pull() override { return store_->Pull(); }
  std::span<const float> params() const override { return store_->params(); }
  double Push(std::span<float> gradient, const UpdateRule& rule) override;
  void Share(std::span<double> values) override;
  void Refresh() override { store_->Refresh(); }
  Traffic traffic() const override { return store_->traffic(); }
  Staleness staleness() const override { return store_->staleness(); }
  void Save(StateWriter& out) const override { store_->Save(out); }
  void Load(const StateReader& in) override { store_->Load(in); }

 private:
  std::unique_ptr<ParameterStore> store_;
  int parts_;
  int position_ = 0;
  double since_s_ = 0, computed_s_ = 0;  // since the last push, up to since_s_
};

// How times vary: the mean of each hundredth of the sorted `ratios`, in thousandths. Fewer ratios than that
// give fewer numbers.
std::vector<int> Hundredths(std::vector<double> ratios);

// Fills in everything about rounds and notices, and applying. Takes about `seconds`. `settings` must be
// resolved. Throws Error, also when `stop` is set.
void MeasureRounds(const RunSettings& settings, double seconds, const std::atomic<bool>& stop,
                   PlanConstants& constants);

}  // namespace trireme
