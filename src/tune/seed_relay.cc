#include "trireme/tune/seed_relay.h"

#include <algorithm>

namespace trireme {

void SeedRelay::Begin(int seed) {
  std::unique_lock lock(mutex_);
  WaitForTurn(lock, seed);
}

void SeedRelay::Pass(int seed) {
  std::unique_lock lock(mutex_);
  GiveTurn(lock, seed);
  WaitForTurn(lock, seed);
}

void SeedRelay::Finish(int seed) {
  std::unique_lock lock(mutex_);
  finished_[static_cast<std::size_t>(seed)] = true;
  GiveTurn(lock, seed);
}

void SeedRelay::EndAll() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  turned_.notify_all();
}

void SeedRelay::WaitForTurn(std::unique_lock<std::mutex>& lock, int seed) {
  turned_.wait(lock, [&] { return ended_ || turn_ == seed; });
  if (ended_) throw TrialEnded();
}

void SeedRelay::GiveTurn(std::unique_lock<std::mutex>&, int seed) {
  const auto unfinished = [&](auto from) { return std::find(from, finished_.end(), false); };
  auto next = unfinished(finished_.begin() + seed + 1);
  if (next == finished_.end()) {  // the round is over
    next = unfinished(finished_.begin());
    if (next == finished_.end()) return;
    if (!ended_ && !at_rung_()) ended_ = true;
  }
  turn_ = static_cast<int>(next - finished_.begin());
  turned_.notify_all();
}

}  // namespace trireme
