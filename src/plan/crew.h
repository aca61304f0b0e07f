// The workers of a simulated run: where they are, how long they compute, and how far they have come.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/plan/simulate.h"

namespace trireme {

class Crew {
 public:
  // `own_s`: what a worker does in a round besides computing its gradient (applying, copying). `turns`: where
  // a host has more workers than processors, computing takes as much longer.
  Crew(const PlanConstants& constants, const Scenario& scenario, double own_s, bool turns = true);

  int workers() const { return static_cast<int>(done_.size()); }
  int hosts() const { return static_cast<int>(on_host_.size()); }
  int HostOf(int worker) const { return worker / per_host_; }
  int FirstOn(int host) const { return host * per_host_; }
  int OnHost(int host) const { return on_host_[host]; }  // number of workers
  std::vector<int> HostOfEach() const;
  // How many times longer something takes on the worker's host, where it takes `all_busy` times as long when
  // every processor has a worker: neighbours share caches and memory.
  double Crowding(int worker, double all_busy) const;

  // Rounds the worker has finished.
  int done(int worker) const { return done_[worker]; }
  // How long the worker computes in its next round, own_s included. The draw depends on seed, worker and
  // round only. Counted when that round is finished.
  double NextCompute(int worker);
  // The worker has finished a round, its first, second, ...
  void Finish(int worker, double now_s);

  // Whether the worker goes on. Workers in step do the same number of rounds each; on their own they go on
  // until all together have done as many.
  bool GoesOn(int worker) const { return in_step_ ? done_[worker] < rounds_ : !AllDone(); }
  bool AllDone() const { return all_done_ == std::int64_t{rounds_} * workers(); }

  // Rates and times; what the workers' communication would take alone is given.
  Outcome Summarise(double communication_s) const;

 private:
  const PlanConstants& constants_;
  const Slowness slow_;
  std::uint64_t seed_;
  bool in_step_;
  double own_s_;
  bool turns_;
  double parts_;  // a worker has one of so many parts of a lone worker's work
  int per_host_;
  int rounds_;
  double ratio_scale_;  // makes the mean of round_times 1
  double cores_;
  std::vector<int> on_host_;
  std::vector<int> done_;            // by worker
  std::vector<double> computing_s_;  // of the round under way, by worker
  std::int64_t all_done_ = 0;
  // The figures start when warm_up_ rounds are done.
  std::int64_t warm_up_;
  double begin_s_ = 0, end_s_ = 0, computed_s_ = 0;
};

}  // namespace trireme
