// The seeds of a trial run in one process, one at a time: each in a thread of its own, of which one has its turn. At a rung a seed
// passes the turn to the next; when all have come to the rung, somebody decides for all whether to go on. So the time that a seed
// takes is its own, and the trial is judged by all its seeds at once.
//
// Thread safety: everything may be called from any thread. What is not guarded by the mutex belongs to the thread that has
// the turn.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace trireme {

// Comes out of a seed's run when the trial ends before its time.
struct TrialEnded {};

class SeedRelay {
 public:
  // `at_rung` is called in the thread of the last seed that comes to a rung, and says whether to go on.
  SeedRelay(int seeds, std::function<bool()> at_rung)
      : finished_(static_cast<std::size_t>(seeds)), at_rung_(std::move(at_rung)) {}

  // Blocks until the seed has its first turn. Throws TrialEnded.
  void Begin(int seed);
  // The seed has come to a rung. Blocks until it has its turn again. Throws TrialEnded.
  void Pass(int seed);
  // The seed has come to its end.
  void Finish(int seed);
  // Everybody is to end.
  void EndAll();

 private:
  void WaitForTurn(std::unique_lock<std::mutex>& lock, int seed);
  // Gives the turn to the next seed, after a decision if this was the last of the round.
  void GiveTurn(std::unique_lock<std::mutex>& lock, int seed);

  std::mutex mutex_;  // guards:
  std::condition_variable turned_;
  int turn_ = 0;
  bool ended_ = false;
  std::vector<bool> finished_;
  const std::function<bool()> at_rung_;
};

}  // namespace trireme
