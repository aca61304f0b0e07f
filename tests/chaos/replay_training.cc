#include "replay_training.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "memory.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kReplay = 32768;  // transitions, of all servers
// Of replay_file.h, for CartPole: two observations of four numbers, an action, a return and a discount.
constexpr std::size_t kHeader = 4096, kFloats = 2 * 4 + 3, kBefore = 8 + 8 + 4, kRecord = 64;

void Tell(const std::string& what, int whom) { std::cout << "  " << what << " " << whom << std::endl; }

}  // namespace

ReplayTraining::ReplayTraining(fs::path folder, unsigned seed) : folder_(std::move(folder)), random_(seed) {
  fs::create_directories(folder_);
  for (int s = 0; s < kServers; ++s) {
    ports_[s] = FreePort();
    of_learner_[s] = std::make_unique<Proxy>(ports_[s]);
    of_actors_[s] = std::make_unique<Proxy>(ports_[s]);
    StartServer(s);
  }
  for (int a = 0; a < kActors; ++a) StartActor(a);
  learner_ = std::make_unique<Process>(
      kBinary, Set(Args{"train", "--env", "CartPole-v1", "--algo", "apex", "--replay",
                        of_learner_[0]->address() + "," + of_learner_[1]->address(), "--steps", "2000000000",
                        "--json", "--out", (folder_ / "run").string()},
                   {"eval_every=0", "rounds=4", "replay=" + std::to_string(kReplay), "server_wait_s=60",
                    "checkpoint_every_s=5"}));
}

void ReplayTraining::StartServer(int s) {
  servers_[s] = std::make_unique<Process>(
      kBinary,
      Args{"replay", "--listen", "127.0.0.1:" + std::to_string(ports_[s]), "--dir", ServerFolder(s)});
}

void ReplayTraining::StartActor(int a) {
  actors_[a] = std::make_unique<Process>(
      kBinary,
      Args{"actor", "--learner", of_actors_[a % kServers]->address(), "--actors", "1", "--wait", "60"});
}

void ReplayTraining::StrikeActor() {
  ++actor_strikes_;
  const int a = kServers + Draw(kActors - kServers);
  actors_[a]->Signal(SIGKILL);
  actors_[a]->Wait(30);
  StartActor(a);
}

void ReplayTraining::KillServer(int s) {
  Tell("kills server", s);
  servers_[s]->Signal(SIGKILL);
  servers_[s]->Wait(30);
  std::set<std::string> seen;
  Audit(s, seen);
  Later([this, s] { StartServer(s); });
}

void ReplayTraining::StrikeServer() {
  if (struck()) return;
  const int s = Draw(kServers);
  // Each kind has its turn, whatever is drawn.
  switch (server_strikes_++ % 4) {
    case 0:
      Tell("freezes server", s);
      servers_[s]->Signal(SIGSTOP);
      return Later([this, s] { servers_[s]->Signal(SIGCONT); });
    case 1:
      return KillServer(s);
    case 2:
      Tell("cuts the learner off server", s);
      of_learner_[s]->Cut();
      return Later([this, s] { of_learner_[s]->Mend(); });
    default:
      Tell("cuts everybody off server", s);
      of_learner_[s]->Cut();
      of_actors_[s]->Cut();
      return Later([this, s] {
        of_learner_[s]->Mend();
        of_actors_[s]->Mend();
      });
  }
}

bool ReplayTraining::Continue() {
  const auto now = Clock::now();
  own_pause_s_ = std::max(own_pause_s_, std::chrono::duration<double>(now - last_call_).count());
  last_call_ = now;
  for (auto it = later_.begin(); it != later_.end() && it->first <= now;) {
    it->second();
    it = later_.erase(it);
  }
  LookAtMemory();
  return !learner_->EndsWithin(0);
}

void ReplayTraining::LookAtMemory() {
  const auto look = [&](Kind kind, const Process& process) {
    long& most = most_memory_[kind][half_];
    most = std::max(most, OwnMemoryKiB(process.pid()));
  };
  look(kLearner, *learner_);
  for (const auto& server : servers_) look(kServer, *server);
  for (const auto& actor : actors_) look(kActor, *actor);
}

std::size_t ReplayTraining::Rows() const {
  const fs::path path = folder_ / "run" / "metrics.jsonl";
  if (!fs::exists(path)) return 0;
  const std::string text = ReadText(path);
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

double ReplayTraining::LongestPause() const {
  std::istringstream rows(ReadText(folder_ / "run" / "metrics.jsonl"));
  double longest = 0, before = -1;
  for (std::string row; std::getline(rows, row);) {
    const double at = Json::parse(row).value("wall_s", 0.0);
    if (before >= 0) longest = std::max(longest, at - before);
    before = at;
  }
  return longest;
}

void ReplayTraining::Audit(int s, std::set<std::string>& seen) {
  const fs::path path = fs::path(ServerFolder(s)) / "transitions";
  if (!fs::exists(path)) return;
  const std::string bytes = ReadText(path);
  ASSERT_EQ(bytes.size(), kHeader + kReplay / kServers * kRecord);
  std::uint64_t inserted = 0;
  for (std::size_t at = kHeader; at < bytes.size(); at += kRecord) {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    if (number == 0) continue;
    inserted = std::max(inserted, number);
    ++audited_;
    ASSERT_TRUE(seen.insert(bytes.substr(at + kBefore, kFloats * sizeof(float))).second)
        << "server " << s << " remembers something twice: transition " << number - 1;
  }
  ASSERT_GE(inserted, inserted_[s]) << "server " << s << " has lost what it had";
  inserted_[s] = inserted;
}

void ReplayTraining::ExpectNothingTwice() {
  std::set<std::string> seen;  // of both: what one was sent the other was not
  for (int s = 0; s < kServers; ++s) ASSERT_NO_FATAL_FAILURE(Audit(s, seen));
  EXPECT_EQ(seen.size(), kReplay) << "they are full";
}

void ReplayTraining::ExpectFlatMemory() const {
  const char* const names[kKinds] = {"the learner", "a server", "an actor"};
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto& [first, second] = most_memory_[kind];
    std::cout << "  memory of " << names[kind] << ": at most " << first / 1024 << " MiB, then "
              << second / 1024 << " MiB" << std::endl;
    EXPECT_GT(first, 0) << names[kind];
    EXPECT_LT(second, first + first / 4 + (8 << 10)) << names[kind] << " grows";
  }
}

Json ReplayTraining::Finish(int more_steps) {
  learner_->Signal(SIGINT);
  const Json partial = ResultOf(learner_->Wait(60), 128 + SIGINT);
  const auto steps = partial.value("steps", std::int64_t{0}) + more_steps;
  const Json result = ResultOf(
      RunTrireme({"train", "--resume", (folder_ / "run").string(), "--json", "--steps", std::to_string(steps),
                  "--target", "400", "--set", "eval_every=" + std::to_string(more_steps / 8)}));
  for (const auto& process : actors_) EXPECT_EQ(process->Wait(60).code, 0);
  for (const auto& process : servers_) {
    const Outcome outcome = process->Wait(60);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.err.find("refused"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("torn"), std::string::npos) << outcome.err;
  }
  return result;
}

}  // namespace trireme::testing
