// Workers in step that die, freeze, hang, come back and join: the others go on.
#include <gtest/gtest.h>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

RunTerms Terms(int workers, int servers, double lease_s = 0.6) {
  RunTerms terms = TestTerms(Pace::kSync, workers, servers);
  terms.lease_s = lease_s;
  terms.optimizer = {.kind = OptimizerKind::kSgd};
  return terms;
}

// A worker of a small training loop: an iteration is two pushes, a sum and the leader's decision. The sum of
// the gradients is always the number of workers of the run, so a version is known by its parameters.
class Trainee {
 public:
  Trainee(TestCluster& cluster, std::uint64_t id) : worker(cluster, id) {}

  // Iterates until the leader has decided to stop, coming back whenever it fell behind.
  void Run(const std::function<bool()>& stop) {
    Enter();
    for (;;) {
      try {
        if (said == kStop) break;
        said = Iterate(stop);
        ++iterations;
      } catch (const FellBehind&) {
        ++fell_behind;
        Enter();
      }
    }
    worker.session.Leave();
  }

  TestWorker worker;
  std::atomic<int> iterations = 0, fell_behind = 0;
  std::function<void()> before_push = [] {};
  std::string said;  // at the last boundary

 private:
  static constexpr const char* kStop = "stop";

  // Whoever comes in later hears what was said there.
  void Enter() {
    const ServerSession::Entry entry = worker.session.Join();
    EXPECT_EQ(entry.at_boundary, !entry.state.empty());
    said = entry.state;
  }

  std::string Iterate(const std::function<bool()>& stop) {
    const RunTerms& terms = worker.session.terms();
    for (int push = 0; push < 2; ++push) {
      before_push();
      std::vector<float> gradient(terms.params + 1, 1.0f);
      worker.store->Push(gradient, {.learning_rate = 1, .max_grad_norm = 1e9});
      EXPECT_FLOAT_EQ(gradient.back(), static_cast<float>(terms.workers));
      // All servers have made the same number of updates.
      const auto params = worker.store->params();
      const std::vector<float> initial = Initial(terms);
      EXPECT_NEAR(params.front() - initial.front(), params.back() - initial.back(), 0.01);
    }
    double count = 1;
    worker.store->Share({&count, 1});
    EXPECT_GE(count, 1);
    EXPECT_LE(count, terms.workers);
    const bool ends = worker.session.leads() && stop();
    return worker.comm.Boundary(ends ? kStop : "go on", worker.session.leads());
  }
};

class Elastic : public testing::TestWithParam<int> {};  // number of servers
INSTANTIATE_TEST_SUITE_P(Servers, Elastic, testing::Values(1, 2, 3));

using Trainees = std::vector<std::unique_ptr<Trainee>>;

Trainees MakeTrainees(TestCluster& cluster, int count) {
  Trainees trainees;
  for (int i = 0; i < count; ++i) trainees.push_back(std::make_unique<Trainee>(cluster, i + 1));
  return trainees;
}

// Runs them, and `story` beside them; stops when it has ended.
void RunTrainees(Trainees& trainees, const std::function<void()>& story) {
  const int count = static_cast<int>(trainees.size());
  std::atomic<bool> stop = false;
  OnThreads(count + 1, [&](int i) {
    if (i < count) return trainees[i]->Run([&] { return stop.load(); });
    story();
    stop = true;
  });
}

int Least(const Trainees& trainees, int but = -1) {
  int least = INT32_MAX;
  for (int i = 0; i < static_cast<int>(trainees.size()); ++i) {
    if (i != but) least = std::min<int>(least, trainees[i]->iterations);
  }
  return least;
}

TEST_P(Elastic, AFrozenWorkerIsLeftBehindAndComesBack) {
  for (const int victim : {0, 2}) {  // the leader, and another
    TestCluster cluster(Terms(3, GetParam()));
    Trainees trainees = MakeTrainees(cluster, 3);
    RunTrainees(trainees, [&] {
      EXPECT_TRUE(Eventually([&] { return Least(trainees) >= 3; }));
      trainees[victim]->worker.Die();
      const int before = Least(trainees, victim);
      EXPECT_TRUE(Eventually([&] { return Least(trainees, victim) >= before + 5; }));
      const int seen = trainees[victim]->iterations;
      trainees[victim]->worker.Revive();
      EXPECT_TRUE(Eventually([&] { return trainees[victim]->iterations >= seen + 3; }));
      EXPECT_GE(trainees[victim]->fell_behind, 1);
    });
  }
}

TEST_P(Elastic, ANewWorkerTakesAFreePlace) {
  TestCluster cluster(Terms(2, GetParam()));
  std::atomic<bool> stop = false;
  Trainee stays(cluster, 1), dies(cluster, 2), comes(cluster, 3);
  OnThreads(4, [&](int i) {
    if (i == 0) return stays.Run([&] { return stop.load(); });
    if (i == 1) {
      EXPECT_THROW(
          {
            dies.before_push = [&] {
              if (dies.iterations == 2) Fail("dies");
            };
            dies.Run([] { return false; });
          },
          Error);
      dies.worker.Die();
      return;
    }
    if (i == 2) {
      EXPECT_TRUE(Eventually([&] { return stays.iterations >= 1; }));
      return comes.Run([&] { return stop.load(); });  // "later: all places are taken", then a place
    }
    EXPECT_TRUE(Eventually([&] { return comes.iterations >= 3; }));
    stop = true;
  });
  EXPECT_EQ(comes.worker.session.rank() + stays.worker.session.rank(), 1);
}

TEST_P(Elastic, AWorkerThatHangsIsLeftAfterTheRound) {
  RunTerms terms = Terms(2, GetParam());
  terms.round_s = 0.6;
  TestCluster cluster(terms);
  std::atomic<bool> hang = true;
  Trainees trainees = MakeTrainees(cluster, 2);
  trainees[1]->before_push = [&] {
    if (trainees[1]->iterations == 2) Eventually([&] { return !hang; });
  };
  RunTrainees(trainees, [&] {
    EXPECT_TRUE(Eventually([&] { return trainees[0]->iterations >= 10; }));
    hang = false;
    EXPECT_TRUE(Eventually([&] { return trainees[1]->iterations >= 5; }));
  });
}

TEST_P(Elastic, ServersThatRestartWhileWorkersComeAndGo) {
  TestCluster cluster(Terms(3, GetParam()), true);
  Trainees trainees = MakeTrainees(cluster, 3);
  RunTrainees(trainees, [&] {
    EXPECT_TRUE(Eventually([&] { return Least(trainees) >= 1; }));
    for (int act = 0; act < 6; ++act) {
      const int victim = act % 3, before = Least(trainees, victim);
      if (act % 2 == 0) trainees[victim]->worker.Die();
      cluster.servers[act % GetParam()]->Restart();
      EXPECT_TRUE(Eventually([&] { return Least(trainees, victim) >= before + 2; }));
      trainees[victim]->worker.Revive();
      trainees[(act + 1) % 3]->worker.wire.Cut();
      const int all = Least(trainees);
      EXPECT_TRUE(Eventually([&] { return Least(trainees) >= all + 2; }));
    }
  });
}

// Nobody enters where the leader has nothing for newcomers; what it last had is there for those who come when
// all are gone, also after a restart of the server.
TEST(ElasticBoundary, NewcomersEnterWithWhatTheLeaderBrought) {
  TestCluster cluster(Terms(2, 1, 0.5), true);
  TestWorker leader(cluster, 1), gone(cluster, 2), newcomer(cluster, 3), last(cluster, 4);
  EXPECT_FALSE(leader.session.Join().at_boundary);
  EXPECT_EQ(gone.session.Join().state, "");
  OnThreads(2, [&](int i) {
    TestWorker& worker = i == 0 ? leader : gone;
    EXPECT_EQ(worker.comm.Boundary(i == 0 ? "first" : "not the leader's", i == 0), "first");
  });
  gone.session.Leave();
  std::atomic<bool> entered = false;
  OnThreads(2, [&](int i) {
    if (i == 0) {
      EXPECT_TRUE(Eventually([&] {
        leader.comm.Boundary("closed", false);
        return leader.session.members() == 2;
      }));
      leader.comm.Boundary("closed", false);
      EXPECT_FALSE(entered);
      leader.comm.Boundary("second", true);
    } else {
      const ServerSession::Entry entry = newcomer.session.Join();
      entered = true;
      EXPECT_TRUE(entry.at_boundary);
      EXPECT_EQ(entry.state, "second");
    }
  });
  EXPECT_EQ(newcomer.session.next_operation(), leader.session.next_operation());
  leader.session.Leave();
  newcomer.session.Leave();
  cluster.servers[0]->Restart();
  const ServerSession::Entry entry = last.session.Join();
  EXPECT_FALSE(entry.at_boundary);
  EXPECT_EQ(entry.state, "second");
}

// One that was cut off at a boundary comes back when others have begun anew from the boundary before.
TEST(ElasticBoundary, WhoeverComesBackWhenOthersHaveBegunAnewIsBehind) {
  TestCluster cluster(Terms(2, 1, 0.5), true);
  TestWorker old(cluster, 1), gone(cluster, 2), other(cluster, 3);
  old.session.Join();
  gone.session.Join();
  OnThreads(2, [&](int i) { (i == 0 ? old : gone).comm.Boundary("first", i == 0); });
  gone.session.Leave();
  old.Die();
  std::atomic<bool> began = false;
  OnThreads(2, [&](int i) {
    if (i == 0) {
      EXPECT_THROW(old.comm.Boundary("second", true), FellBehind);
      EXPECT_TRUE(began);
    } else {
      EXPECT_EQ(other.session.Join().state, "first");
      cluster.servers[0]->Restart();
      EXPECT_EQ(other.comm.Boundary("second again", true), "second again");
      began = true;
      old.Revive();
    }
  });
}

// Two of three make rounds. Between the welcomes of two servers to the third they make one: it would have parameters of two
// versions, and wait on the second server for a round that the others never come to.
TEST(ElasticBoundary, WhoeverIsOvertakenBetweenTwoServersEntersAtTheNextBoundary) {
  RunTerms terms = Terms(3, 2, 5);
  terms.backup_workers = 1;
  TestCluster cluster(terms);
  TestWorker first(cluster, 1), second(cluster, 2), late(cluster, 3);
  std::atomic<bool> welcome = false, entered = false;
  std::atomic<int> pushed = 0;
  late.wire.lose = [&](const std::string& address, MessageKind kind) {
    if (kind == MessageKind::kWelcome && address == cluster.servers[0]->address()) {
      welcome = true;
      EXPECT_TRUE(Eventually([&] { return pushed == 2; }));
    }
    return false;
  };
  OnThreads(3, [&](int i) {
    if (i == 2) {
      EXPECT_TRUE(late.session.Join().at_boundary);
      EXPECT_EQ(late.session.version(0), 1u);
      EXPECT_EQ(late.session.version(1), 1u);
      entered = true;
      return;
    }
    TestWorker& worker = i == 0 ? first : second;
    worker.session.Join();
    EXPECT_TRUE(Eventually([&] { return welcome.load(); }));
    std::vector<float> gradient(terms.params, 1.0f);
    worker.store->Push(gradient, {.learning_rate = 1, .max_grad_norm = 1e9});
    ++pushed;
    EXPECT_TRUE(Eventually(
        [&] { return worker.comm.Boundary(entered ? "go on" : "wait", worker.session.leads()) == "go on"; }));
  });
  EXPECT_EQ(Copy(late.session.params()), Copy(first.session.params()));
}

// Parameters and moments of all servers, and the updates that made them.
struct Held {
  std::vector<float> params;
  std::vector<AlignedBuffer<float>> moments;
  std::uint64_t updates = 0;

  explicit Held(TestWorker& worker) {
    const RunTerms& terms = worker.session.terms();
    for (std::size_t m = 0; m < terms.moments(); ++m) moments.emplace_back(terms.params);
    worker.session.Fetch(moments, updates);
    params = Copy(worker.session.params());
  }
};

void ExpectHeld(TestWorker& worker, const std::vector<float>& params, Optimizer& optimizer,
                std::uint64_t updates) {
  const Held held(worker);
  EXPECT_EQ(held.updates, updates);
  EXPECT_EQ(held.params, params);
  for (std::size_t m = 0; m < held.moments.size(); ++m)
    EXPECT_TRUE(std::ranges::equal(held.moments[m].span(), optimizer.moments()[m])) << m;
}

// All who take part are gone in the middle of an iteration, while others wait to enter: its updates are undone on
// every server, whichever of them had made the last one, and also if servers were killed meanwhile.
TEST_P(Elastic, AnIterationThatNobodyHasEndedIsMadeAgainAsAWhole) {
  for (const bool restart : {false, true}) {
    RunTerms terms = Terms(2, GetParam(), 0.5);
    terms.optimizer = {};  // Adam, whose steps count
    TestCluster cluster(terms, true);
    TestWorker leader(cluster, 1), other(cluster, 2), newcomer(cluster, 3);
    leader.session.Join();
    other.session.Join();
    std::vector<float> params = Initial(terms);
    Optimizer optimizer(terms.optimizer, terms.params);
    const auto both = [&](const std::function<void(TestWorker&, int)>& act) {
      OnThreads(2, [&](int i) { act(i == 0 ? leader : other, i); });
    };
    const auto push = [&](TestWorker& worker, int entity, std::uint64_t step) {
      std::vector<float> gradient = Draw(entity, step, terms.params);
      worker.store->Push(gradient, {.learning_rate = 0.01f, .max_grad_norm = 1e9});
    };
    const auto boundary = [&](const std::string& said) {
      both([&](TestWorker& worker, int i) { EXPECT_EQ(worker.comm.Boundary(said, i == 0), said); });
    };
    boundary("first");
    both([&](TestWorker& worker, int i) { push(worker, i, 0); });
    std::vector<float> sum = Draw(0, 0, terms.params);
    const std::vector<float> second = Draw(1, 0, terms.params);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
    optimizer.Step(params, sum, 0.01f);
    boundary("second");
    both([&](TestWorker& worker, int i) { push(worker, i, 1); });
    both([&](TestWorker& worker, int i) { push(worker, i, 2); });
    if (restart) {
      for (const auto& server : cluster.servers) server->Restart();
    }
    leader.Die();
    other.Die();
    // One begins anew, but is gone before it has told the other servers.
    {
      TestWorker gone(cluster, 8);
      std::vector<float> part(gone.session.range(0).size);
      EXPECT_EQ(gone.session.link(0).Join({.worker = 8, .terms = terms}, part).state, "second");
    }
    EXPECT_EQ(newcomer.session.Join().state, "second");
    EXPECT_EQ(Copy(newcomer.session.params()), params);
    ExpectHeld(newcomer, params, optimizer, 1);
    const std::uint64_t anew = newcomer.session.boundary();

    // It goes on from there, as if nothing had happened since. One worker's gradient stands for two.
    EXPECT_EQ(newcomer.comm.Boundary("again", true), "again");
    push(newcomer, 0, 3);
    std::vector<float> doubled = Draw(0, 3, terms.params);
    for (float& value : doubled) value *= 2;
    optimizer.Step(params, doubled, 0.01f);
    ExpectHeld(newcomer, params, optimizer, 2);
    // One that was let in to begin anew, too, but comes to the other servers only now, undoes nothing.
    for (int server = 1; server < terms.servers; ++server) {
      TestWorker late(cluster, 9);
      std::vector<float> part(late.session.range(server).size);
      late.session.link(server).Join(
          {.worker = 9, .rank = 1, .server = server, .anew = 2, .boundary = anew, .terms = terms}, part);
    }
    ExpectHeld(newcomer, params, optimizer, 2);
    // One that comes back is behind, wherever it asks.
    other.Revive();
    if (restart) {
      EXPECT_THROW(push(other, 1, 3), FellBehind);
    } else {
      EXPECT_THROW(other.comm.Boundary("third", false), FellBehind);
    }
    for (const auto& server : cluster.servers) server->Restart();
    ExpectHeld(newcomer, params, optimizer, 2);
  }
}

// Sums of those who are there stand for all.
// The only worker dies at its `last` message of an update.
void FollowOneThatDied(int backup_workers, int last) {
  SCOPED_TRACE(testing::Message() << backup_workers << " backup workers, message " << last);
  RunTerms terms = Terms(2, 2, 0.2);
  terms.optimizer = {};
  terms.backup_workers = backup_workers;
  TestCluster cluster(terms, true);
  TestWorker leader(cluster, terms, 1, false, /*patience_s=*/3), other(cluster, 2), newcomer(cluster, 3);
  leader.session.Join();
  other.session.Join();
  OnThreads(2, [&](int i) { (i == 0 ? leader : other).comm.Boundary("first", i == 0); });
  other.session.Leave();
  int messages = 0;
  leader.wire.fault = [&] {
    if (++messages == last) leader.Die();
    return false;
  };
  const UpdateRule rule{.learning_rate = 0.01f, .max_grad_norm = 1e9};
  std::vector<float> gradient = Draw(0, 0, terms.params);
  const auto whole = [&] {
    leader.store->Push(gradient, rule);
    leader.Die();
    leader.comm.Boundary("second", true);
  };
  EXPECT_THROW(whole(), Error);
  EXPECT_EQ(newcomer.session.Join().state, "first");
  EXPECT_EQ(Copy(newcomer.session.params()), Initial(terms));
  EXPECT_EQ(newcomer.comm.Boundary("again", true), "again");
  newcomer.store->Push(gradient, rule);
  EXPECT_EQ(Held(newcomer).updates, 1u);
}

// Some servers have made the update and undo it, others have not: their versions differ from then on.
TEST(ElasticBoundary, WhoeverFollowsOneThatDiedBetweenTwoServersBeginsAtTheBoundary) {
  constexpr int kMessages = 8;
  OnThreads(2 * kMessages, [](int which) { FollowOneThatDied(which % 2, 1 + which / 2); });
}

TEST(ElasticBoundary, SharedSumsAreScaledForThoseWhoAreMissing) {
  TestCluster cluster(Terms(4, 1, 0.5));
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(std::make_unique<TestWorker>(cluster, i + 1));
  for (const auto& worker : workers) worker->session.Join();
  workers[3]->session.Leave();
  OnThreads(3, [&](int i) {
    double values[] = {1, 6};
    workers[i]->store->Share(values);
    EXPECT_EQ(values[0], 4);
    EXPECT_EQ(values[1], 24);
  });
}

// One worker is in a round, the other in a collective operation: the leader sets the pace.
TEST(ElasticOrder, WorkersInDifferentOperationsDoNotWaitForEver) {
  for (const int lost : {0, 1}) {
    TestCluster cluster(Terms(2, 1, 5));
    TestWorker first(cluster, 1), second(cluster, 2);
    first.session.Join();
    second.session.Join();
    TestWorker* const pushes[] = {&first, &second};
    OnThreads(2, [&](int i) {
      TestWorker& worker = *pushes[i];
      try {
        if (i == lost) {
          std::vector<float> gradient(cluster.terms.params, 1.0f);
          worker.store->Push(gradient, {.learning_rate = 1});
        } else {
          worker.comm.Barrier();
        }
        EXPECT_TRUE(worker.session.leads());
      } catch (const FellBehind&) {
        EXPECT_EQ(worker.session.rank(), 1);
      }
    });
  }
}

TEST(ElasticOrder, WaitingSaysForWhom) {
  TestCluster cluster(Terms(3, 1, 5));
  TestWorker worker(cluster, 1, false, 1.5), other(cluster, 2);
  worker.session.Join();
  other.session.Join();
  // The server falls silent after it has said once that it waits.
  int messages = 0;
  worker.wire.fault = [&] {
    if (++messages == 2) worker.wire.Freeze();  // the first is the push
    return false;
  };
  std::vector<float> gradient(cluster.terms.params, 1.0f);
  try {
    worker.store->Push(gradient, {.learning_rate = 1});
    ADD_FAILURE();
  } catch (const ServerLost& lost) {
    const std::string text = lost.what();
    EXPECT_NE(
        text.find("worker 0 waited 1.5 s for server server:1 to answer: round 0 waits for worker 1 (heard"),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("worker 2 (not there)"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme
