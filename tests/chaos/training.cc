#include "training.h"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <sstream>
#include <thread>

#include "memory.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

void Tell(const char* what, int whom) { std::cout << "  " << what << " " << whom << std::endl; }

}  // namespace

Training::Training(TrainingKind kind, fs::path folder, std::mt19937& random)
    : kind_(std::move(kind)), folder_(std::move(folder)), random_(random) {
  for (int s = 0; s < kServers; ++s) {
    ports_.push_back(FreePort());
    for (int w = 0; w < kWorkers; ++w) proxies_[w][s] = std::make_unique<Proxy>(ports_[s]);
  }
  for (int s = 0; s < kServers; ++s) StartServer(s);
  for (int w = 0; w < kWorkers; ++w) StartWorker(w);
}

// Whoever has written metrics last leads.
int Training::Victim() {
  if (Draw(2) == 0) return Draw(kWorkers);
  int leader = 0;
  fs::file_time_type latest = fs::file_time_type::min();
  for (int w = 0; w < kWorkers; ++w) {
    std::error_code missing;
    const fs::file_time_type written = fs::last_write_time(worker_folders_[w] / "metrics.jsonl", missing);
    if (!missing && written > latest) {
      latest = written;
      leader = w;
    }
  }
  return leader;
}

void Training::Strike() {
  ++strikes_;
  if (kind_.kills_all && struck_.empty() && Draw(3) == 0) {
    for (int w = 0; w < kWorkers; ++w) KillWorker(w);
    return;
  }
  if (Draw(3) == 0 || !struck_.empty()) return StrikeServer(Draw(kServers));
  StrikeWorker(Victim());
}

void Training::StrikeWorker(int w) {
  struck_.insert(w);
  const int links = Draw(3);  // which of its cables are cut: either one, or all
  switch (Draw(kind_.kills_workers ? 3 : 2)) {
    case 0:
      Tell("freezes worker", w);
      workers_[w]->Signal(SIGSTOP);
      Later(500 + Draw(3500), [this, w] {
        workers_[w]->Signal(SIGCONT);
        struck_.erase(w);
      });
      break;
    case 1:
      Tell(links < kServers ? "cuts one link of worker" : "cuts off worker", w);
      for (int s = 0; s < kServers; ++s) {
        if (links == s || links == kServers) proxies_[w][s]->Cut();
      }
      Later(500 + Draw(3500), [this, w] {
        for (auto& proxy : proxies_[w]) proxy->Mend();
        struck_.erase(w);
      });
      break;
    default:
      KillWorker(w);
  }
}

void Training::KillWorker(int w) {
  Tell("kills worker", w);
  struck_.insert(w);
  workers_[w]->Signal(SIGKILL);
  workers_[w]->Wait(10);
  Later(Draw(2000), [this, w] {
    StartWorker(w);
    struck_.erase(w);
  });
}

void Training::StrikeServer(int s) {
  if (Draw(2) == 0) {
    Tell("kills server", s);
    servers_[s]->Signal(SIGKILL);
    servers_[s]->Wait(10);
    Later(Draw(2000), [this, s] { StartServer(s); });
  } else {
    Tell("freezes server", s);
    servers_[s]->Signal(SIGSTOP);
    Later(500 + Draw(2500), [this, s] { servers_[s]->Signal(SIGCONT); });
  }
}

void Training::Later(int after_ms, std::function<void()> action) {
  later_.emplace(Clock::now() + milliseconds(after_ms), std::move(action));
}

bool Training::Continue() {
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
    most_memory_[s] = std::max(most_memory_[s], OwnMemoryKiB(servers_[s]->pid()));
  for (int w = 0; w < kWorkers; ++w) {
    if (!struck_.contains(w) && workers_[w]->EndsWithin(0)) return true;
  }
  return false;
}

std::vector<Json> Training::Finish() {
  const auto deadline = Clock::now() + seconds(60);
  std::set<int> ended;
  while (static_cast<int>(ended.size()) < kWorkers && Clock::now() < deadline) {
    Continue();
    for (int w = 0; w < kWorkers; ++w) {
      if (!struck_.contains(w) && workers_[w]->EndsWithin(0)) ended.insert(w);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(ended.size(), kWorkers) << "workers that do not end with the run";
  std::vector<Json> results;
  for (int w = 0; w < kWorkers; ++w) {
    const Outcome outcome = workers_[w]->Wait(10);
    if (outcome.code == 3) continue;  // it came when the run had ended
    EXPECT_EQ(outcome.code, 0) << "worker " << w << ", signal " << outcome.signal << ": " << outcome.err;
    const std::string last = outcome.out.substr(0, outcome.out.find('\n'));
    if (!last.empty()) results.push_back(Json::parse(last));
  }
  for (const auto& server : servers_) {
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait(10).code, 0);
  }
  return results;
}

void Training::Audit() {
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
  for (const fs::path& folder : WorkerFolders()) {
    if (!fs::exists(folder / "acknowledged-0")) continue;
    std::istringstream lines(ReadText(folder / "acknowledged-0"));
    int server = 0;
    for (std::string worker, sequence; lines >> server >> worker >> sequence; ++acknowledged_) {
      ASSERT_TRUE(applied[server].contains(worker + " " + sequence))
          << "server " << server << " lost " << worker << " " << sequence;
    }
  }
}

std::vector<fs::path> Training::WorkerFolders() const {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("worker")) folders.push_back(entry.path());
  }
  return folders;
}

void Training::StartServer(int s) {
  const std::string name = "server" + std::to_string(s);
  servers_[s] =
      std::make_unique<Process>(kBinary, Args{"server", "--listen", "127.0.0.1:" + std::to_string(ports_[s]),
                                              "--dir", (folder_ / name).string(), "--audit", "--quiet"});
}

void Training::StartWorker(int w) {
  worker_folders_[w] = folder_ / ("worker" + std::to_string(w) + "-" + std::to_string(++started_));
  const std::string servers = proxies_[w][0]->address() + "," + proxies_[w][1]->address();
  const Args all = Args{"train",
                        "--store",
                        "server",
                        "--servers",
                        servers,
                        "--workers",
                        std::to_string(kind_.threads),
                        "--json",
                        "--out",
                        worker_folders_[w].string()} +
                   kind_.args;
  workers_[w] = std::make_unique<Process>(
      kBinary, Set(all, {"lease_s=" + std::to_string(kind_.lease_s), "server_wait_s=60"}));
}

}  // namespace trireme::testing
