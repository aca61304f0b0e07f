// The workers of a simulated run: where they are, how long they compute, and how far they have come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/plan/simulate.h"

namespace trireme {

class Crew {
 public:
  // `own_s`: what a worker does in a round besides computing its gradient.
  Crew(const PlanConstants& constants, const Scenario& scenario, double own_s)
      : constants_(constants),
        scenario_(scenario),
        own_s_(own_s),
        parts_(scenario.way->in_step && scenario.split ? scenario.workers : 1),
        rounds_(scenario.rounds > 0 ? scenario.rounds : std::max(kDraws / scenario.workers, kFewestRounds)),
        done_(scenario.workers),
        computing_s_(scenario.workers) {
    TRIREME_CHECK(scenario.workers >= 1 && scenario.cores >= 1 && scenario.hosts >= 0);
    const auto divide_up = [](int a, int b) { return (a + b - 1) / b; };
    const int needed = divide_up(scenario.workers, scenario.cores);
    per_host_ = divide_up(scenario.workers, scenario.hosts == 0 ? needed : std::min(needed, scenario.hosts));
    hosts_ = divide_up(scenario.workers, per_host_);
    const std::vector<int>& times = constants.round_times;
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    TRIREME_CHECK(sum > 0);
    ratio_scale_ = static_cast<double>(times.size()) / sum;
  }

  int workers() const { return static_cast<int>(done_.size()); }
  int hosts() const { return hosts_; }
  int per_host() const { return per_host_; }  // workers; the last host may have fewer
  int HostOf(int worker) const { return worker / per_host_; }
  // How many times longer something takes on the host, where it takes `all_busy` times as long when every
  // processor has a worker: neighbours share caches and memory.
  double Crowding(int host, double all_busy) const {
    const int busy = std::min({per_host_, workers() - host * per_host_, scenario_.cores});
    return scenario_.cores > 1 ? 1 + (all_busy - 1) * (busy - 1) / (scenario_.cores - 1) : 1;
  }

  // How long the worker computes in its next round on a processor of its own, own_s included. The draw depends
  // on seed, worker and round only. Counted when that round is finished.
  double NextCompute(int worker) {
    RandomStream random(scenario_.seed, Purpose::kPlan, static_cast<std::uint32_t>(worker), done_[worker]);
    const std::vector<int>& times = constants_.round_times;
    const double ratio = ratio_scale_ * times[random.NextBelow(static_cast<std::uint32_t>(times.size()))];
    const Slowness& slow = scenario_.slow;
    double slower = worker == slow.worker ? slow.factor : 1;
    if (slow.chance > 0 && random.NextUniform() < slow.chance) slower *= slow.slowdown;
    const double alone_s = constants_.RoundSeconds(parts_) + own_s_;
    return computing_s_[worker] = alone_s * ratio * slower * Crowding(HostOf(worker), constants_.crowding);
  }
  // The worker has finished a round, its first, second, ...
  void Finish(int worker, double now_s) {
    const std::int64_t warm_up = std::int64_t{rounds_ / 5} * workers();
    ++done_[worker];
    ++all_done_;
    end_s_ = now_s;
    if (all_done_ > warm_up) {
      computed_s_ += computing_s_[worker];
      ++counted_;
    } else {
      begin_s_ = now_s;
    }
  }

  // Whether the worker goes on. Workers in step do the same number of rounds each; on their own they go on
  // until all together have done as many.
  bool GoesOn(int worker) const { return scenario_.way->in_step ? done_[worker] < rounds_ : !AllDone(); }
  bool AllDone() const { return all_done_ == std::int64_t{rounds_} * workers(); }

  // Rates and times; what the workers' communication would take alone, and what they sent, is given.
  Outcome Summarise(double communication_s, double bytes, double messages) const {
    const double elapsed_s = end_s_ - begin_s_;
    TRIREME_CHECK(AllDone() && counted_ > 0 && elapsed_s > 0);
    Outcome outcome;
    outcome.hosts = hosts();
    outcome.steps_per_s = counted_ / elapsed_s * constants_.steps_per_round / parts_;
    outcome.round_s = elapsed_s * workers() / counted_;
    outcome.compute_s = computed_s_ / counted_;
    const double rest_s = std::max(0.0, outcome.round_s - outcome.compute_s);
    outcome.communication_s = std::min(communication_s, rest_s);
    outcome.waiting_s = rest_s - outcome.communication_s;
    outcome.bytes_per_round = bytes / rounds_;
    outcome.messages_per_round = messages / rounds_;
    return outcome;
  }

 private:
  // Draws of all workers together that make a figure steady, and the fewest rounds that show how workers wait
  // for each other.
  static constexpr int kDraws = 16'384, kFewestRounds = 60;

  const PlanConstants& constants_;
  Scenario scenario_;
  double own_s_;
  double parts_;  // a worker has one of so many parts of a lone worker's work
  int rounds_, per_host_ = 1, hosts_ = 1;
  double ratio_scale_ = 1;           // makes the mean of round_times 1
  std::vector<int> done_;            // rounds, by worker
  std::vector<double> computing_s_;  // of the round under way, by worker
  std::int64_t all_done_ = 0;
  double begin_s_ = 0, end_s_ = 0, computed_s_ = 0, counted_ = 0;
};

}  // namespace trireme
