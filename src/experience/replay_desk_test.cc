// Replay servers and their learners over streams.
#include "trireme/experience/replay_desk.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/experience/message_parts.h"
#include "trireme/experience/remote_actor.h"
#include "trireme/experience/remote_replay.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kParams = 3;
constexpr int kSteps = 4, kEnvs = 2, kSamples = kSteps * kEnvs;
constexpr std::uint64_t kPart = 4;
constexpr double kAnySlack = 1e9;

bool Eventually(const std::function<bool()>& condition) {
  const Deadline end = Clock::now() + 20s;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

ReplayRun RunOf(double draws_per_insert = 1, double least = 16, double slack = 16) {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {3};
  env.action = ActionSpace::Discrete(2);
  return {.id = "run",
          .looks = "looks",
          .shape = {env, kSteps, kEnvs},
          .rules = {.capacity = 64, .n_step = 1, .gamma = 0.5, .alpha = 1, .epsilon = 0.1},
          .rate = {.draws_per_insert = draws_per_insert, .least = least, .slack = slack},
          .part = kPart,
          .settings = "settings",
          .params = kParams,
          .seed = 5};
}

// A server in a thread of its own, over a transport that outlives it.
class Served {
 public:
  Served(MemoryTransport& transport, const std::string& name, const std::filesystem::path& folder = {})
      : server_(transport.Listen(name, {})),
        desk_(*server_, {.version = "1",
                         .folder = folder,
                         .say =
                             [this](const std::string& text) {
                               const std::lock_guard lock(mutex_);
                               said_ += text + "\n";
                             }}),
        thread_([this] { server_->Run(desk_, [this] { return desk_.done() || killed_.load(); }); }) {}
  ~Served() {
    desk_.Leave();
    thread_.join();
  }
  // As a process that is killed: nobody is told.
  void Kill() { killed_ = true; }
  bool done() const { return desk_.done(); }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  std::unique_ptr<ServerTransport> server_;
  std::mutex mutex_;  // guards said_
  std::string said_;
  std::atomic<bool> killed_{false};
  ReplayDesk desk_;
  std::thread thread_;
};

// A transport that notes what a learner does at each address: waiting, and asking for draws.
class WatchedTransport final : public Transport {
 public:
  struct Notes {
    int waits = 0;
    std::uint64_t asked = 0;
  };

  explicit WatchedTransport(MemoryTransport& to) : to_(to) {}

  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                  const Limits& limits) override {
    const std::lock_guard lock(mutex_);
    return std::make_unique<Watched>(to_.Connect(address, security, limits), notes_[address]);
  }
  std::unique_ptr<ServerTransport> Listen(const std::string& address, const Security& security,
                                          const Limits& limits) override {
    return to_.Listen(address, security, limits);
  }
  // Only for the learner's thread, while nobody is being connected.
  Notes& at(const std::string& address) { return notes_.at(address); }

 private:
  class Watched final : public Stream {
   public:
    Watched(std::unique_ptr<Stream> to, Notes& notes) : to_(std::move(to)), notes_(notes) {}
    bool Send(Outgoing message, Deadline deadline) override {
      if (!to_->Send(message, deadline)) return false;
      ReplayWord word{};
      ReplayTurn turn;
      if (message->size() < sizeof word + sizeof turn) return true;
      std::memcpy(&word, message->data(), sizeof word);
      std::memcpy(&turn, message->data() + sizeof word, sizeof turn);
      if (word == ReplayWord::kTurn) notes_.asked += turn.wanted;
      return true;
    }
    bool Flush(Deadline deadline) override { return to_->Flush(deadline); }
    Incoming* Receive(Deadline deadline) override {
      notes_.waits += deadline > Clock::now();
      return to_->Receive(deadline);
    }
    bool closed() const override { return to_->closed(); }
    std::string why() const override { return to_->why(); }

   private:
    std::unique_ptr<Stream> to_;
    Notes& notes_;
  };

  MemoryTransport& to_;
  std::mutex mutex_;  // guards:
  std::map<std::string, Notes> notes_;
};

RemoteReplay::Options Learner(MemoryTransport& transport, std::vector<std::string> servers) {
  return {.transport = &transport, .servers = std::move(servers), .version = "1", .wait_s = 20, .ahead = 2};
}
LearnerPlace Place(MemoryTransport& transport, const std::string& name) {
  return {.transport = &transport, .address = name, .version = "1", .wait_s = 20};
}

// The i-th of an actor: its observations say which it is.
void Mark(Trajectory& t, int actor, int number) {
  if (t.samples() == 0) t = Trajectory(RowLayout(3), 1, kSteps, kEnvs);
  for (std::size_t i = 0; i < t.obs.size(); i += 3) {
    t.obs[i] = static_cast<float>(actor);
    t.obs[i + 1] = static_cast<float>(number);
    t.obs[i + 2] = static_cast<float>(i / 3);
  }
  for (int i = 0; i < kSamples; ++i) {
    t.actions[i] = static_cast<float>(i % 2);
    t.rewards[i] = static_cast<float>(number);
    t.extra[i] = 1;
    t.terminated[i] = t.truncated[i] = 0;
  }
  t.episodes = {.count = 1, .return_sum = 2, .length_sum = 3};
}

// Collects until the run ends or `most` are sent, in a thread.
class ActorThread {
 public:
  ActorThread(LearnerPlace place, int actor, int most = 1'000'000) {
    place.stop = [this] { return stop_.load(); };
    thread_ = std::thread([this, place, actor, most] {
      try {
        RemoteActorEnd end(place);
        Trajectory trajectory;
        while (end.Join()) {
          end.Ready("looks", kParams);
          while (const auto policy = end.Newest()) {
            if (sent_ >= most) break;
            Mark(trajectory, actor, sent_);
            trajectory.policy = policy->version;
            if (!end.Send(trajectory)) break;
            ++sent_;
          }
          if (sent_ >= most) break;
        }
        ended_well_ = true;
      } catch (const Error& error) {
        why_ = error.what();
      }
    });
  }
  ~ActorThread() {
    stop_ = true;
    Join();
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  int sent() const { return sent_.load(); }
  bool ended_well() const { return ended_well_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> sent_{0};
  bool ended_well_ = false;
  std::string why_;
  std::thread thread_;
};

// What is drawn is what some actor has sent, whole.
void ExpectWhole(const ReplayDraw& draw) {
  const TransitionBatch& t = draw.transitions;
  ASSERT_EQ(t.size, kPart);
  for (std::size_t i = 0; i < t.size; ++i) {
    const float* obs = t.obs.data() + i * 3;
    const float* next = t.next_obs.data() + i * 3;
    EXPECT_EQ(t.returns[i], obs[1]);
    EXPECT_EQ(t.discounts[i], 0.5f);
    EXPECT_EQ(next[0], obs[0]);
    EXPECT_EQ(next[1], obs[1]);
    EXPECT_EQ(next[2], obs[2] + kEnvs);
    EXPECT_EQ(t.actions[i], static_cast<float>(static_cast<int>(obs[2]) % 2));
    EXPECT_GT(draw.weights[i], 0);
  }
}

TEST(ReplayServer, ActorsFillItAndLearnersDraw) {
  MemoryTransport transport;
  Served server(transport, "a");
  RemoteReplay replay(Learner(transport, {"a"}), RunOf());
  replay.Begin(std::vector<float>(kParams, 1.0f));  // actors that come before wait, maybe too long
  ActorThread actor(Place(transport, "a"), 1), other(Place(transport, "a"), 2);
  EpisodeTotals episodes;
  std::set<float> actors;
  for (int i = 0; i < 200; ++i) {
    const ReplayDraw& draw = replay.Draw(0, i, 0.5);
    ExpectWhole(draw);
    for (std::size_t k = 0; k < kPart; ++k) actors.insert(draw.transitions.obs[k * 3]);
    replay.Correct(0, std::vector<float>(kPart, 1.0f));
    episodes += replay.TakeEpisodes(0);
    if (i % 10 == 0) replay.Begin(std::vector<float>(kParams, static_cast<float>(i)));
  }
  EXPECT_EQ(actors, (std::set<float>{1, 2}));
  // 800 were drawn: 800 / 8 trajectories and 2 before, give or take the slack of 2.
  EXPECT_NEAR(episodes.count, 102, 5);
  EXPECT_EQ(episodes.return_sum, 2 * episodes.count);
  EXPECT_NEAR(actor.sent() + other.sent(), 102, 5 + 2 * static_cast<int>(kWindow));
  EXPECT_EQ(replay.received().lag.count(), static_cast<std::uint64_t>(episodes.count));
  replay.EndRun();
  actor.Join();
  other.Join();
  EXPECT_TRUE(actor.ended_well());
  EXPECT_TRUE(Eventually([&] { return server.done(); }));
}

class Ahead : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Draws, Ahead, testing::Values(1, 2, 8));  // of 8, four go together

// Errors that come back change what is drawn.
TEST_P(Ahead, ErrorsReachTheMemory) {
  MemoryTransport transport;
  Served server(transport, "a");
  RemoteReplay::Options options = Learner(transport, {"a"});
  options.ahead = GetParam();
  RemoteReplay replay(options, RunOf(1, /*least=*/64, kAnySlack));
  ActorThread actor(Place(transport, "a"), 1, 8);
  replay.Begin(std::vector<float>(kParams));
  // One step of one trajectory is worth more and more than all else.
  const auto chosen = [](const ReplayDraw& draw, std::size_t k) {
    return draw.transitions.obs[k * 3 + 1] == 3 && draw.transitions.obs[k * 3 + 2] == 2;
  };
  std::size_t late = 0;
  for (int i = 0; i < 400; ++i) {
    const ReplayDraw& draw = replay.Draw(0, i, 0.5);
    std::vector<float> errors;
    for (std::size_t k = 0; k < kPart; ++k) {
      errors.push_back(chosen(draw, k) ? 1e6f : 1e-3f);
      late += i >= 300 && chosen(draw, k);
    }
    replay.Correct(0, errors);
  }
  EXPECT_GT(late, 350u) << "of 400";
}

// The ratio of draws to inserts stays within its slack whoever is faster.
TEST(ReplayServer, WhoIsAheadWaits) {
  MemoryTransport transport;
  Served server(transport, "a");
  RemoteReplay replay(Learner(transport, {"a"}), RunOf());
  ActorThread actor(Place(transport, "a"), 1);
  replay.Begin(std::vector<float>(kParams));
  replay.Draw(0, 0, 0.5);
  // Nobody draws: 16 + 16 transitions, 2 of which are for draws that are owed, and what is under way.
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(actor.sent(), 4 + 2 + static_cast<int>(kWindow) + 1);
  EXPECT_TRUE(Eventually([&] { return actor.sent() >= 2; }));
}

TEST(ReplayServer, AServerThatIsFrozenIsPassedOver) {
  MemoryTransport transport;
  Served a(transport, "a"), b(transport, "b");
  RemoteReplay replay(Learner(transport, {"a", "b"}), RunOf(1, /*least=*/16, kAnySlack));
  ActorThread of_a(Place(transport, "a"), 1, 8), of_b(Place(transport, "b"), 2, 8);
  replay.Begin(std::vector<float>(kParams));
  const auto drawn_from = [&](int times) {
    std::set<float> actors;
    for (int i = 0; i < times; ++i) {
      const ReplayDraw& draw = replay.Draw(0, i, 0.5);
      actors.insert(draw.transitions.obs[0]);
      replay.Correct(0, std::vector<float>(kPart, 1.0f));
    }
    return actors;
  };
  ASSERT_TRUE(Eventually([&] { return drawn_from(20) == std::set<float>{1, 2}; }));
  transport.Freeze(1);  // the first stream of all
  drawn_from(8);        // what was under way
  EXPECT_EQ(drawn_from(50), std::set<float>{2});
  transport.Thaw(1);
  EXPECT_TRUE(Eventually([&] { return drawn_from(20).contains(1); })) << "it is one of them again";
}

TEST(ReplayServer, NobodyWaitsForAServerThatIsSilentWhileAnotherOneSpeaks) {
  MemoryTransport transport;
  WatchedTransport watched(transport);
  Served a(transport, "a"), b(transport, "b");
  RemoteReplay::Options options = Learner(transport, {"a", "b"});
  options.transport = &watched;
  int looks = 0, most_looks = 1'000'000;
  options.give_up = [&](double, bool) {
    if (++looks > most_looks) Fail("enough");
  };
  RemoteReplay replay(options, RunOf());
  ActorThread of_a(Place(transport, "a"), 1);
  ActorThread of_b(Place(transport, "b"), 2, 40);
  replay.Begin(std::vector<float>(kParams));
  const auto draw = [&] {
    replay.Draw(0, 0, 0.5);
    replay.Correct(0, std::vector<float>(kPart, 1.0f));
  };
  for (int i = 0; i < 30; ++i) draw();
  transport.Freeze(1);
  for (int i = 0; i < 8; ++i) draw();  // with what was under way
  const WatchedTransport::Notes then_a = watched.at("a"), then_b = watched.at("b");
  // Until b has nothing more either.
  most_looks = looks + 1000;
  EXPECT_THROW(for (;;) draw(), Error);
  EXPECT_GE(watched.at("b").waits - then_b.waits, 1000);
  EXPECT_EQ(watched.at("a").waits, then_a.waits);
  EXPECT_EQ(watched.at("a").asked, then_a.asked);
}

// What is drawn early is drawn by old errors.
TEST(ReplayServer, NoMoreDrawsAreOwedThanWereAskedFor) {
  for (const int ahead : {1, 2, 6}) {
    SCOPED_TRACE(ahead);
    MemoryTransport transport;
    WatchedTransport watched(transport);
    Served a(transport, "a"), b(transport, "b");
    RemoteReplay::Options options = Learner(transport, {"a", "b"});
    options.transport = &watched;
    options.ahead = ahead;
    RemoteReplay replay(options, RunOf(1, /*least=*/16, kAnySlack));
    ActorThread of_a(Place(transport, "a"), 1, 8), of_b(Place(transport, "b"), 2, 8);
    replay.Begin(std::vector<float>(kParams));
    for (std::uint64_t used = 1; used <= 100; ++used) {
      replay.Draw(0, used, 0.5);
      replay.Correct(0, std::vector<float>(kPart, 1.0f));
      const std::uint64_t owed = watched.at("a").asked + watched.at("b").asked - used;
      ASSERT_LE(owed, static_cast<std::uint64_t>(std::max(ahead, 2))) << "each owes one";
    }
  }
}

TEST(ReplayServer, ABrokenStreamIsOpenedAgain) {
  MemoryTransport transport;
  Served server(transport, "a");
  RemoteReplay replay(Learner(transport, {"a"}), RunOf(1, /*least=*/16, kAnySlack));
  ActorThread actor(Place(transport, "a"), 1, 8);
  replay.Begin(std::vector<float>(kParams));
  for (int i = 0; i < 20; ++i) ExpectWhole(replay.Draw(0, i, 0.5));
  transport.Cut(1);
  for (int i = 0; i < 20; ++i) {
    ExpectWhole(replay.Draw(0, i, 0.5));
    replay.Correct(0, std::vector<float>(kPart, 1.0f));
  }
}

// A server that was killed has what it had taken, with its errors; a new one goes on with it.
TEST(ReplayServer, FindsWhatItHadAgain) {
  const ScratchFolder folder;
  MemoryTransport transport;
  auto server = std::make_unique<Served>(transport, "a", folder.path() / "a");
  RemoteReplay replay(Learner(transport, {"a"}), RunOf(1, /*least=*/16, kAnySlack));
  {
    ActorThread actor(Place(transport, "a"), 1, 20);
    replay.Begin(std::vector<float>(kParams));
    for (int i = 0; i < 20; ++i) replay.Draw(0, i, 0.5);
    actor.Join();
  }
  EXPECT_TRUE(Eventually([&] {
    const ReplayDraw& draw = replay.Draw(0, 0, 0.5);
    return *std::ranges::max_element(draw.numbers) >= 19u * kSamples;
  })) << "all have come";
  server->Kill();
  server.reset();
  server = std::make_unique<Served>(transport, "a", folder.path() / "a");
  EXPECT_NE(server->said().find("found 64 transitions"), std::string::npos) << server->said();
  std::set<float> numbers;
  for (int i = 0; i < 300; ++i) {
    const ReplayDraw& draw = replay.Draw(0, i, 0.5);
    ExpectWhole(draw);
    for (std::size_t k = 0; k < kPart; ++k) numbers.insert(draw.transitions.obs[k * 3 + 1]);
  }
  EXPECT_EQ(numbers, (std::set<float>{12, 13, 14, 15, 16, 17, 18, 19})) << "the last 64, and nothing else";
}

// Otherwise it, and its actors, would wait for a learner for ever.
TEST(ReplayServer, HearsOfTheEndAlsoWhereTheStreamHasBroken) {
  MemoryTransport transport;
  Served a(transport, "a"), b(transport, "b");
  RemoteReplay replay(Learner(transport, {"a", "b"}), RunOf(1, /*least=*/16, kAnySlack));
  replay.Begin(std::vector<float>(kParams));
  ActorThread of_a(Place(transport, "a"), 1), of_b(Place(transport, "b"), 2);
  std::set<float> drawn;
  ASSERT_TRUE(Eventually([&] {  // both have come
    drawn.insert(replay.Draw(0, 0, 0.5).transitions.obs[0]);
    return drawn.size() == 2;
  }));
  transport.Cut(1);
  replay.EndRun();
  for (Served* server : {&a, &b}) ASSERT_TRUE(Eventually([&] { return server->done(); }));
  for (ActorThread* actor : {&of_a, &of_b}) {
    actor->Join();
    EXPECT_TRUE(actor->ended_well());
  }
}

// Nor is there less time for others to hear of it.
TEST(ReplayServer, HearsOfTheEndAlsoWhereAnotherOneIsSilent) {
  MemoryTransport transport;
  Served a(transport, "a"), b(transport, "b");
  std::string said;
  RemoteReplay::Options options = Learner(transport, {"a", "b"});
  options.say = [&](const std::string& text) { said += text + "\n"; };
  RemoteReplay replay(options, RunOf(1, /*least=*/16, kAnySlack));
  ActorThread of_a(Place(transport, "a"), 1, 8), of_b(Place(transport, "b"), 2);
  replay.Begin(std::vector<float>(kParams));
  for (int i = 0; i < 20; ++i) replay.Draw(0, i, 0.5);
  transport.Freeze(1);
  transport.Cut(2);
  replay.EndRun();
  EXPECT_TRUE(Eventually([&] { return b.done(); }));
  EXPECT_FALSE(a.done());
  EXPECT_EQ(said, "the replay server at a has not heard that the run is over: stop it, if it comes back\n");
}

}  // namespace
}  // namespace trireme
