// One learner, two replay servers with folders and four actors, any of which but the learner can be struck.
//
// One server is struck at a time, and no longer than kStrike; of actors, all but the first of each server.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "proxy.h"
#include "run_util.h"

namespace trireme::testing {

class ReplayTraining {
 public:
  static constexpr int kServers = 2, kActors = 4;
  static constexpr auto kStrike = std::chrono::seconds(6);

  ReplayTraining(std::filesystem::path folder, unsigned seed);

  // Freezes, cuts off or kills a server, unless one is struck.
  void StrikeServer();
  // Kills an actor, and starts another one at once.
  void StrikeActor();
  // What was struck comes back in time. Call it often. False when the learner has ended.
  bool Continue();
  // From now on memory counts to the second half.
  void BeginSecondHalf() { half_ = 1; }
  bool struck() const { return !later_.empty(); }
  // Rows of the learner's metrics.
  std::size_t Rows() const;

  // Interrupts the learner, goes on with it for so many steps, and expects that all end with code 0. Returns its result.
  Json Finish(int more_steps);
  // Expects that nothing is remembered twice, as far as the servers' files reach.
  void ExpectNothingTwice();
  void ExpectFlatMemory() const;
  // The longest time between two rows of the learner's metrics, and between two calls of Continue.
  double LongestPause() const;
  double OwnPause() const { return own_pause_s_; }

  int server_strikes() const { return server_strikes_; }
  int actor_strikes() const { return actor_strikes_; }
  std::uint64_t audited() const { return audited_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Kind { kLearner, kServer, kActor, kKinds };

  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::string ServerFolder(int s) const { return (folder_ / ("server" + std::to_string(s))).string(); }
  void StartServer(int s);
  void StartActor(int a);
  void KillServer(int s);
  void Later(std::function<void()> action) { later_.emplace(Clock::now() + kStrike, std::move(action)); }
  // The transitions in a server's file that is not written to, each once.
  void Audit(int s, std::set<std::string>& seen);
  void LookAtMemory();

  const std::filesystem::path folder_;
  std::mt19937 random_;
  std::array<std::uint16_t, kServers> ports_;
  std::array<std::unique_ptr<Proxy>, kServers> of_learner_, of_actors_;
  std::array<std::unique_ptr<Process>, kServers> servers_;
  std::array<std::unique_ptr<Process>, kActors> actors_;
  std::unique_ptr<Process> learner_;
  std::multimap<Clock::time_point, std::function<void()>> later_;
  int server_strikes_ = 0, actor_strikes_ = 0, half_ = 0;
  std::array<std::array<long, 2>, kKinds> most_memory_ = {};  // KiB, in each half
  std::array<std::uint64_t, kServers> inserted_ = {};         // as the files said last
  std::uint64_t audited_ = 0;
  Clock::time_point last_call_ = Clock::now();
  double own_pause_s_ = 0;
};

}  // namespace trireme::testing
