#include "trireme/plan/crew.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

// Draws of all workers together that make a figure steady, and the fewest rounds that show how workers wait
// for each other.
constexpr int kDraws = 16'384, kFewestRounds = 60;

int ChooseRounds(const Scenario& scenario) {
  return scenario.rounds > 0 ? scenario.rounds : std::max(kDraws / scenario.workers, kFewestRounds);
}

int DivideUp(int a, int b) { return (a + b - 1) / b; }

}  // namespace

Crew::Crew(const PlanConstants& constants, const Scenario& scenario, double own_s, bool turns)
    : constants_(constants),
      slow_(scenario.slow),
      seed_(scenario.seed),
      in_step_(InStep(scenario.way)),
      own_s_(own_s),
      turns_(turns),
      parts_(in_step_ && scenario.split ? scenario.workers : 1),
      rounds_(ChooseRounds(scenario)),
      cores_(scenario.cores) {
  TRIREME_CHECK(scenario.workers >= 1 && scenario.cores >= 1 && scenario.hosts >= 0);
  const int needed = DivideUp(scenario.workers, scenario.cores);
  per_host_ = DivideUp(scenario.workers, scenario.hosts == 0 ? needed : std::min(needed, scenario.hosts));
  on_host_.assign(DivideUp(scenario.workers, per_host_), per_host_);
  on_host_.back() = scenario.workers - per_host_ * (hosts() - 1);
  done_.resize(scenario.workers);
  computing_s_.resize(scenario.workers);
  const std::vector<int>& times = constants.round_times;
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  TRIREME_CHECK(sum > 0);
  ratio_scale_ = static_cast<double>(times.size()) / sum;
  warm_up_ = std::int64_t{rounds_ / 5} * scenario.workers;
}

std::vector<int> Crew::HostOfEach() const {
  std::vector<int> hosts(done_.size());
  for (int worker = 0; worker < workers(); ++worker) hosts[worker] = HostOf(worker);
  return hosts;
}

double Crew::NextCompute(int worker) {
  RandomStream random(seed_, Purpose::kPlan, static_cast<std::uint32_t>(worker), done_[worker]);
  const std::vector<int>& times = constants_.round_times;
  const double ratio = ratio_scale_ * times[random.NextBelow(static_cast<std::uint32_t>(times.size()))];
  double slower = worker == slow_.worker ? slow_.factor : 1;
  if (slow_.chance > 0 && random.NextUniform() < slow_.chance) slower *= slow_.slowdown;

  const double turns = turns_ ? std::max(1.0, OnHost(HostOf(worker)) / cores_) : 1;
  const double alone_s = constants_.RoundSeconds(parts_) + own_s_;
  return computing_s_[worker] = alone_s * ratio * slower * Crowding(worker, constants_.crowding) * turns;
}

double Crew::Crowding(int worker, double all_busy) const {
  const double busy = std::min<double>(OnHost(HostOf(worker)), cores_);
  return cores_ > 1 ? 1 + (all_busy - 1) * (busy - 1) / (cores_ - 1) : 1;
}

void Crew::Finish(int worker, double now_s) {
  ++done_[worker];
  ++all_done_;
  end_s_ = now_s;
  if (all_done_ > warm_up_) computed_s_ += computing_s_[worker];
  if (all_done_ == warm_up_) begin_s_ = now_s;
}

Outcome Crew::Summarise(double communication_s) const {
  const auto counted = static_cast<double>(all_done_ - warm_up_);
  const double elapsed_s = end_s_ - begin_s_;
  TRIREME_CHECK(counted > 0 && elapsed_s > 0);
  Outcome outcome;
  outcome.hosts = hosts();
  outcome.steps_per_s = counted / elapsed_s * constants_.steps_per_round / parts_;
  outcome.round_s = elapsed_s * workers() / counted;
  outcome.compute_s = computed_s_ / counted;
  outcome.communication_s = communication_s;
  outcome.waiting_s = std::max(0.0, outcome.round_s - outcome.compute_s - communication_s);
  return outcome;
}

}  // namespace trireme
