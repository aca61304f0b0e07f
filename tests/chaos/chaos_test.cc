// Four workers and two servers, and every few seconds something is killed, frozen or cut off. Training must
// reach its target all the same, no acknowledged update may be lost or applied twice, and memory must not
// grow.
//
// Runs for CHAOS_SECONDS (60 unless set): one training after the other, each slowed down so that it takes a
// good part of a minute. CHAOS_SEED chooses what happens.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "proxy.h"
#include "run_util.h"

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kWorkers = 4, kServers = 2;
constexpr double kLease = 1.5;

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Of its own: pages of files that it has read are not counted, the system takes them back when it wants.
long ResidentKiB(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atol(line.c_str() + 8);
  }
  return 0;
}

// One training with all its processes.
class Training {
 public:
  Training(std::filesystem::path folder, std::mt19937& random) : folder_(std::move(folder)), random_(random) {
    for (int s = 0; s < kServers; ++s) {
      ports_.push_back(FreePort());
      for (int w = 0; w < kWorkers; ++w) proxies_[w][s] = std::make_unique<Proxy>(ports_[s]);
    }
    for (int s = 0; s < kServers; ++s) StartServer(s);
    for (int w = 0; w < kWorkers; ++w) StartWorker(w);
  }

  // Something bad.
  void Strike() {
    const int w = Draw(kWorkers), s = Draw(kServers);
    switch (Draw(6)) {
      case 0:
        Tell("kills worker", w);
        workers_[w]->Signal(SIGKILL);
        workers_[w]->Wait(10);
        Later(Draw(2000), [this, w] { StartWorker(w); });
        break;
      case 1:
        Tell("freezes worker", w);
        workers_[w]->Signal(SIGSTOP);
        Later(500 + Draw(3500), [this, w] { workers_[w]->Signal(SIGCONT); });
        break;
      case 2:
        Tell("cuts off worker", w);
        for (auto& proxy : proxies_[w]) proxy->Cut();
        Later(500 + Draw(3500), [this, w] {
          for (auto& proxy : proxies_[w]) proxy->Mend();
        });
        break;
      case 3:
        Tell("kills server", s);
        servers_[s]->Signal(SIGKILL);
        servers_[s]->Wait(10);
        Later(Draw(2000), [this, s] { StartServer(s); });
        break;
      case 4:
        Tell("freezes server", s);
        servers_[s]->Signal(SIGSTOP);
        Later(500 + Draw(2500), [this, s] { servers_[s]->Signal(SIGCONT); });
        break;
      default:
        Tell("cuts one link of worker", w);
        proxies_[w][s]->Cut();
        Later(500 + Draw(3500), [this, w, s] { proxies_[w][s]->Mend(); });
    }
    ++strikes_;
  }

  // What was struck comes back in time. True when a worker has ended by itself: the run is over.
  bool Continue() {
    for (auto it = later_.begin(); it != later_.end();) {
      if (Clock::now() < it->first) {
        ++it;
        continue;
      }
      const std::function<void()> action = std::move(it->second);
      it = later_.erase(it);
      action();
    }
    for (int s = 0; s < kServers; ++s)
      most_memory_[s] = std::max(most_memory_[s], ResidentKiB(servers_[s]->pid()));
    for (const auto& worker : workers_) {
      if (worker && worker->EndsWithin(0)) return true;
    }
    return false;
  }

  // Lets everything that is still under way come back and end.
  void Finish() {
    const auto deadline = Clock::now() + seconds(60);
    std::map<int, bool> ended;
    while (static_cast<int>(ended.size()) < kWorkers && Clock::now() < deadline) {
      Continue();
      for (int w = 0; w < kWorkers; ++w) {
        if (workers_[w]->EndsWithin(0)) ended[w] = true;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
    EXPECT_EQ(ended.size(), kWorkers) << "workers that do not end with the run";
    int reached = 0;
    for (int w = 0; w < kWorkers; ++w) {
      const Outcome outcome = workers_[w]->Wait(10);
      EXPECT_EQ(outcome.code, 0) << "worker " << w << ": " << outcome.err;
      const std::string last = outcome.out.substr(0, outcome.out.find('\n'));
      if (!last.empty() && Json::parse(last).value("reached_target", false)) ++reached;
    }
    EXPECT_GE(reached, 1) << "no worker has seen the target reached";
    for (const auto& server : servers_) {
      server->Signal(SIGTERM);
      EXPECT_EQ(server->Wait(10).code, 0);
    }
  }

  // Every update has one line in its server's list; what was acknowledged to a worker must be there.
  void Audit() {
    std::set<std::string> applied[kServers];
    for (int s = 0; s < kServers; ++s) {
      std::istringstream lines(
          ReadText(folder_ / ("server" + std::to_string(s)) / ("audit-" + std::to_string(s))));
      std::uint64_t expected = 0, version = 0;
      for (std::string worker, sequence; lines >> version >> worker >> sequence;) {
        ASSERT_EQ(version, ++expected) << "server " << s;
        ASSERT_TRUE(applied[s].insert(worker + " " + sequence).second)
            << "server " << s << " applied twice: " << worker << " " << sequence;
      }
      updates_ += expected;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (!entry.path().filename().string().starts_with("worker")) continue;
      const auto list = entry.path() / "acknowledged-0";
      if (!std::filesystem::exists(list)) continue;
      std::istringstream lines(ReadText(list));
      int server = 0;
      for (std::string worker, sequence; lines >> server >> worker >> sequence; ++acknowledged_) {
        ASSERT_TRUE(applied[server].contains(worker + " " + sequence))
            << "server " << server << " lost " << worker << " " << sequence;
      }
    }
  }

  int strikes() const { return strikes_; }
  std::uint64_t updates() const { return updates_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  long most_memory() const { return *std::max_element(most_memory_, most_memory_ + kServers); }

 private:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void Tell(const char* what, int whom) { std::cout << "  " << what << " " << whom << std::endl; }
  void Later(int after_ms, std::function<void()> action) {
    later_.emplace(Clock::now() + milliseconds(after_ms), std::move(action));
  }

  void StartServer(int s) {
    const std::string name = "server" + std::to_string(s);
    servers_[s] = std::make_unique<Process>(
        kBinary, Args{"server", "--listen", "127.0.0.1:" + std::to_string(ports_[s]), "--dir",
                      (folder_ / name).string(), "--audit", "--quiet"});
  }

  void StartWorker(int w) {
    const std::string servers = proxies_[w][0]->address() + "," + proxies_[w][1]->address();
    const std::string name = "worker" + std::to_string(w) + "-" + std::to_string(++started_);
    workers_[w] = std::make_unique<Process>(kBinary, Args{"train",
                                                          "--env",
                                                          "CartPole-v1",
                                                          "--algo",
                                                          "a3c",
                                                          "--store",
                                                          "server",
                                                          "--servers",
                                                          servers,
                                                          "--workers",
                                                          "1",
                                                          "--steps",
                                                          "20000000",
                                                          "--target",
                                                          "475",
                                                          "--audit",
                                                          "--json",
                                                          "--straggler",
                                                          "worker=0,factor=200",
                                                          "--set",
                                                          "learning_rate=1e-4",
                                                          "--set",
                                                          "value_learning_rate=1e-3",
                                                          "--set",
                                                          "lease_s=" + std::to_string(kLease),
                                                          "--set",
                                                          "server_wait_s=60",
                                                          "--set",
                                                          "checkpoint_every_s=2",
                                                          "--out",
                                                          (folder_ / name).string()});
  }

  std::filesystem::path folder_;
  std::mt19937& random_;
  std::vector<std::uint16_t> ports_;
  std::unique_ptr<Proxy> proxies_[kWorkers][kServers];
  std::unique_ptr<Process> servers_[kServers], workers_[kWorkers];
  std::multimap<Clock::time_point, std::function<void()>> later_;
  int started_ = 0, strikes_ = 0;
  std::uint64_t updates_ = 0, acknowledged_ = 0;
  long most_memory_[kServers] = {};
};

using ChaosTest = CliTest;

TEST_F(ChaosTest, TrainingReachesItsTargetAndNoUpdateIsLostOrDoubled) {
  const auto end = Clock::now() + seconds(FromEnvironment("CHAOS_SECONDS", 60));
  std::mt19937 random(static_cast<unsigned>(FromEnvironment("CHAOS_SEED", 1)));
  long first_memory = 0, last_memory = 0;
  for (int run = 0; run == 0 || Clock::now() < end; ++run) {
    std::cout << "training " << run << std::endl;
    Training training(folder_ / std::to_string(run), random);
    const auto deadline = Clock::now() + seconds(300);
    for (auto strike = Clock::now() + seconds(3); !training.Continue();
         std::this_thread::sleep_for(milliseconds(20))) {
      ASSERT_LT(Clock::now(), deadline) << "the target was not reached";
      if (Clock::now() < strike) continue;
      training.Strike();
      strike += seconds(5);
    }
    training.Finish();
    training.Audit();
    if (HasFatalFailure()) return;
    last_memory = training.most_memory();
    if (run == 0) first_memory = last_memory;
    std::cout << "  target reached: " << training.strikes() << " strikes, " << training.updates()
              << " updates, " << training.acknowledged() << " acknowledged, servers at most "
              << last_memory / 1024 << " MiB" << std::endl;
  }
  EXPECT_LT(last_memory, first_memory + (32 << 10)) << "the servers' memory grows from training to training";
}

}  // namespace
}  // namespace trireme::testing
