// A store that watches: it hands every call to another store and notes how much time lies between the calls,
// which is what a worker computes, and how much in them. Time is that of the thread's processor, so what
// others do on the machine meanwhile does not count; all calls come from the thread that computes.
//
// It can also stand in for a group: a worker that has 1/parts of the work is answered as if the other workers
// had sent the same as it did, so that its statistics stay those of a whole batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/store/parameter_store.h"

namespace trireme {

// Processor time of the calling thread.
double ThreadSeconds();

class TimingStore final : public ParameterStore {
 public:
  TimingStore(std::unique_ptr<ParameterStore> store, int parts);

  // A round: what the worker computed before a push.
  struct Round {
    int position;  // in its iteration: 0, 1, ...
    double compute_s;
  };
  struct Account {
    std::vector<Round> rounds;
    double push_s = 0;            // spent in pushes
    std::size_t push_floats = 0;  // of the last push
    std::uint64_t shares = 0;
    std::uint64_t share_bytes = 0;
  };

  // Forgets what was measured so far and starts to measure.
  void Start();
  // The time from now to Resume() counts as nothing.
  void Pause();
  void Resume();
  // The next push is the first of an iteration.
  void BeginIteration() { position_ = 0; }
  const Account& account() const { return account_; }

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
  Account account_;
  int position_ = 0;
  double computing_since_s_ = 0;
  double computed_s_ = 0;  // since the last push, up to computing_since_s_
};

}  // namespace trireme
