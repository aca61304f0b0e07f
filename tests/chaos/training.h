// One training through two servers with all its processes, any of which can be struck.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proxy.h"
#include "run_util.h"

namespace trireme::testing {

// What is trained, and what it has to endure.
struct TrainingKind {
  Args args;             // of every worker
  double lease_s = 1.5;  // silence after which a worker is given up
  bool kills_workers = true;
  bool kills_all = false;  // now and then, all workers at once
  int threads = 1;         // of each worker process
};

class Training {
 public:
  static constexpr int kWorkers = 4, kServers = 2;

  Training(TrainingKind kind, std::filesystem::path folder, std::mt19937& random);

  // Something bad: half of what strikes workers strikes the one that leads. No two workers are struck at
  // once, unless all are.
  void Strike();
  // What was struck comes back in time. True when a worker has ended by itself: the run is over.
  bool Continue();
  // Lets everything that is still under way come back and end. Expects that all workers end well; returns the
  // results of those that took part to the end.
  std::vector<Json> Finish();
  // Expects that every update stands once in its server's list, and what was acknowledged to a worker too.
  void Audit();

  // Of every worker that was ever started.
  std::vector<std::filesystem::path> WorkerFolders() const;
  int strikes() const { return strikes_; }
  std::uint64_t updates() const { return updates_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  long most_memory() const { return *std::max_element(most_memory_, most_memory_ + kServers); }

 private:
  using Clock = std::chrono::steady_clock;

  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  int Victim();
  void StrikeWorker(int w);
  void KillWorker(int w);
  void StrikeServer(int s);
  void Later(int after_ms, std::function<void()> action);
  void StartServer(int s);
  void StartWorker(int w);

  const TrainingKind kind_;
  const std::filesystem::path folder_;
  std::mt19937& random_;
  std::vector<std::uint16_t> ports_;
  std::unique_ptr<Proxy> proxies_[kWorkers][kServers];
  std::unique_ptr<Process> servers_[kServers], workers_[kWorkers];
  std::filesystem::path worker_folders_[kWorkers];  // of those that run now
  std::multimap<Clock::time_point, std::function<void()>> later_;
  std::set<int> struck_;  // workers
  int started_ = 0, strikes_ = 0;
  std::uint64_t updates_ = 0, acknowledged_ = 0;
  long most_memory_[kServers] = {};
};

}  // namespace trireme::testing
