// Compressed gradients and parameters, end to end against what they are by hand, and while streams break and
// servers die.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/codec/codec.h"
#include "trireme/optim/clip.h"
#include "trireme/server/payload.h"
#include "trireme/server/service/held_params.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

constexpr int kStats = 2;
const UpdateRule kRule{.learning_rate = 0.01f, .max_grad_norm = 50, .groups = {{700, 3000, 0.001f, 20}}};
const char* const kCodecs[] = {"fp16", "bf16", "int8", "onebit", "topk=0.01", "powersgd=4"};

RunTerms Compressed(RunTerms terms, const std::string& codec, const std::string& params_codec = "") {
  terms.compress = codec;
  terms.compress_params = !params_codec.empty() ? params_codec : codec == "powersgd=4" ? "int8" : codec;
  return terms;
}

// What `codec` says of these values; `state` keeps the rest.
std::vector<float> Through(const Codec& codec, std::span<const float> values, CodecState& state) {
  std::vector<std::byte> message(codec.bytes(values.size()));
  codec.Encode(values, state, message);
  std::vector<float> said(values.size());
  codec.Decode(message, said);
  return said;
}

// A sender's residuals, a part of the gradient for each server.
struct Sender {
  const RunTerms& terms;
  std::unique_ptr<Codec> codec = MakeCodec(terms.compress);
  std::vector<CodecState> states = {};

  std::vector<float> Send(std::span<const float> gradient) {
    std::vector<float> sent;
    for (int server = 0; server < terms.servers; ++server) {
      const PartRange part = RangeOfServer(terms, server);
      if (static_cast<int>(states.size()) == server) states.push_back(codec->MakeState(part.size));
      const std::vector<float> said =
          Through(*codec, gradient.subspan(part.begin, part.size), states[server]);
      sent.insert(sent.end(), said.begin(), said.end());
    }
    return sent;
  }
};

// `held` goes towards `params` by one message of each server.
void Follow(const RunTerms& terms, std::span<const float> params, std::vector<float>& held) {
  if (terms.compress_params == kNoCodec) {
    held.assign(params.begin(), params.end());
    return;
  }
  const auto codec = MakeCodec(terms.compress_params);
  for (int server = 0; server < terms.servers; ++server) {
    const PartRange part = RangeOfServer(terms, server);
    std::vector<float> difference(part.size);
    for (std::size_t i = 0; i < part.size; ++i) difference[i] = params[part.begin + i] - held[part.begin + i];
    CodecState state = codec->MakeState(part.size);
    const std::vector<float> said = Through(*codec, difference, state);
    for (std::size_t i = 0; i < part.size; ++i) held[part.begin + i] += said[i];
  }
}

// ------------------------------------------------------------------------------------------------- in step

struct InStep {
  std::vector<float> held, exact;
};
const InStep& ByHandInStep(const RunTerms& terms, int rounds) {
  static std::map<std::string, InStep> known;
  InStep& result = known[terms.Encode() + std::to_string(rounds)];
  if (!result.held.empty()) return result;
  std::vector<Sender> senders;
  for (int worker = 0; worker < terms.workers; ++worker) senders.push_back({terms});
  result = {Initial(terms), Initial(terms)};
  Optimizer optimizer(terms.optimizer, terms.params);
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> sum = senders[0].Send(Draw(0, round, terms.params));
    const std::vector<float> other = senders[1].Send(Draw(1, round, terms.params));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    ClipGradient(sum, kRule.max_grad_norm, kRule.groups);
    optimizer.Step(result.exact, sum, kRule.learning_rate, kRule.groups);
    Follow(terms, result.exact, result.held);
  }
  return result;
}

// Two workers that push `rounds` times in step and expect what it is by hand, and exact statistics.
void TrainInStep(
    TestCluster& cluster, int rounds,
    const std::function<void(TestWorker&, int)>& prepare = [](TestWorker&, int) {},
    const std::function<void(int, int)>& before = [](int, int) {}) {
  const InStep& expected = ByHandInStep(cluster.terms, rounds);
  OnThreads(2, [&](int i) {
    TestWorker worker(cluster, i + 1);
    prepare(worker, i);
    worker.session.Join();
    const int rank = worker.session.rank();
    for (int round = 0; round < rounds; ++round) {
      before(i, round);
      std::vector<float> gradient = Draw(rank, round, cluster.terms.params);
      gradient.push_back(0.1f * static_cast<float>(rank + 1));
      gradient.push_back(static_cast<float>(round));
      worker.store->Push(gradient, kRule);
      EXPECT_EQ(gradient[cluster.terms.params], 0.1f + 0.2f);
      EXPECT_EQ(gradient[cluster.terms.params + 1], static_cast<float>(2 * round));
    }
    EXPECT_TRUE(Copy(worker.store->params()) == expected.held) << cluster.terms.compress;
    worker.comm.Barrier();
    worker.session.Leave();
  });
}

TEST(CompressedInStep, IsWhatItIsByHand) {
  for (const char* codec : kCodecs) {
    for (const int servers : {1, 2}) {
      for (const char* params_codec : {"", "none"}) {
        TestCluster cluster(Compressed(TestTerms(Pace::kSync, 2, servers), codec, params_codec));
        TrainInStep(cluster, 8);
      }
    }
  }
}

TEST(CompressedInStep, LostMessagesChangeNothing) {
  for (const int servers : {1, 2}) {
    TestCluster cluster(Compressed(TestTerms(Pace::kSync, 2, servers), "int8"));
    TrainInStep(cluster, 12, [](TestWorker& worker, int i) {
      auto random = std::make_shared<RandomStream>(6, Purpose::kTest, i, 0);
      worker.wire.fault = [random] { return random->NextBelow(12) == 0; };
    });
  }
}

// A server that was started again knows what its workers hold.
TEST(CompressedInStep, RestartedServersChangeNothing) {
  for (const char* codec : {"int8", "onebit", "topk=0.01"}) {
    TestCluster cluster(Compressed(TestTerms(Pace::kSync, 2, 2), codec), true);
    std::mutex mutex;
    TrainInStep(
        cluster, 12, [](TestWorker&, int) {},
        [&](int i, int round) {
          if ((round * 2 + i) % 7 != 3) return;
          const std::lock_guard lock(mutex);
          cluster.servers[static_cast<std::size_t>((round + i) % 2)]->Restart();
        });
  }
}

// Parameters, moments, what workers hold and what they have not sent: everything goes on.
TEST(CompressedInStep, SavedStateContinuesOnOtherServers) {
  for (const char* codec : kCodecs) {
    const RunTerms terms = Compressed(TestTerms(Pace::kSync, 2, 2), codec);
    std::string saved;
    std::vector<std::string> own(2);
    const auto train = [&](TestCluster& cluster, int begin, int end, bool load) {
      const InStep& expected = ByHandInStep(terms, end);
      OnThreads(2, [&](int i) {
        TestWorker worker(cluster, i + 1);
        if (load) worker.store->Load(StateReader(saved));
        worker.session.Join();
        const auto rank = static_cast<std::size_t>(worker.session.rank());
        StateWriter both;
        if (load) {
          for (const std::string& state : own) both.Merge(state);
          EXPECT_EQ(worker.store->LoadOwn(StateReader(both.Encode())), "");
        }
        for (int round = begin; round < end; ++round) {
          std::vector<float> gradient = Draw(static_cast<std::uint32_t>(rank), round, terms.params);
          worker.store->Push(gradient, kRule);
        }
        EXPECT_TRUE(Copy(worker.store->params()) == expected.held) << codec << " after " << end;
        worker.comm.Barrier();
        if (load) return worker.session.Leave();
        StateWriter state, residual;
        if (rank == 0) {
          worker.store->Save(state);
          saved = state.Encode();
        }
        worker.store->SaveOwn(residual);
        own[rank] = residual.Encode();
        worker.comm.Barrier();
        worker.session.Leave();
      });
    };
    TestCluster first(terms), second(terms);
    train(first, 0, 5, false);
    train(second, 5, 9, true);
  }
}

// A round that did without a worker leaves what it had not sent as it was.
TEST(CompressedInStep, WhatARoundDidWithoutIsNotSent) {
  RunTerms terms = Compressed(TestTerms(Pace::kSync, 2, 1), "topk=0.01");
  terms.backup_workers = 1;
  TestCluster cluster(terms);
  TestWorker slow(cluster, 1);
  std::unique_ptr<TestWorker> fast;
  OnThreads(2, [&](int i) {
    if (i == 1) fast = std::make_unique<TestWorker>(cluster, 2);
    (i == 0 ? slow : *fast).session.Join();
  });
  std::vector<float> gradient = Draw(0, 0, terms.params), late = Draw(1, 0, terms.params);
  const double before = slow.store->ResidualNorm();
  fast->store->Push(gradient, kRule);
  slow.store->Push(late, kRule);  // the round is over
  EXPECT_EQ(before, 0);
  EXPECT_LT(slow.store->ResidualNorm(), 1e-4);
  EXPECT_GT(fast->store->ResidualNorm(), 1);
  EXPECT_EQ(Copy(slow.store->params()), Copy(fast->store->params()));
}

// --------------------------------------------------------------------------------------------- on their own

// Two workers take turns; each is told what has changed since it was told last.
TEST(CompressedOnTheirOwn, IsWhatItIsByHand) {
  for (const char* codec : kCodecs) {
    for (const Pace pace : {Pace::kAsync, Pace::kSsp}) {
      RunTerms terms = Compressed(TestTerms(pace, 1, 2), codec);
      terms.staleness_bound = 2;
      TestCluster cluster(terms);
      TestWorker first(cluster, 1), second(cluster, 2);
      TestWorker* const workers[] = {&first, &second};
      Sender senders[] = {{terms}, {terms}};
      std::vector<float> held[2], params = Initial(terms);
      Optimizer optimizer(terms.optimizer, terms.params);
      first.store->Pull();
      second.store->Pull();
      for (int push = 0; push < 16; ++push) {
        const int who = push % 2;
        std::vector<float> gradient = Draw(who, push, terms.params), plain = gradient;
        workers[who]->store->Push(gradient, kRule);
        ClipGradient(plain, kRule.max_grad_norm, kRule.groups);
        optimizer.Step(params, senders[who].Send(plain), kRule.learning_rate, kRule.groups);
        if (held[who].empty()) {
          held[who] = params;  // the first answer is whole
        } else {
          Follow(terms, params, held[who]);
        }
        ASSERT_TRUE(Copy(workers[who]->store->params()) == held[who]) << codec << " push " << push;
      }
      // A checkpoint brings them whole, and a pull goes on from there.
      StateWriter state;
      first.store->Save(state);
      EXPECT_TRUE(Copy(first.store->params()) == params);
      second.store->Refresh();
      Follow(terms, params, held[1]);
      EXPECT_TRUE(Copy(second.store->params()) == held[1]);
    }
  }
}

// Every push is applied once, whatever is lost: the server's parameters are those of an undisturbed worker, and
// what a worker holds comes ever closer to them.
TEST(CompressedOnTheirOwn, LostMessagesAndRestartsLoseNoPush) {
  for (const char* codec : {"int8", "onebit", "topk=0.01"}) {
    const RunTerms terms = Compressed(TestTerms(Pace::kAsync, 1, 2), codec);
    Sender sender{terms};
    std::vector<float> params = Initial(terms);
    Optimizer optimizer(terms.optimizer, terms.params);
    TestCluster cluster(terms, true);
    TestWorker worker(cluster, 1, true);
    RandomStream random(7, Purpose::kTest, 0, 0);
    bool calm = false;
    worker.wire.fault = [&] { return !calm && random.NextBelow(10) == 0; };
    for (int push = 0; push < 40; ++push) {
      std::vector<float> gradient = Draw(0, push, terms.params), plain = gradient;
      worker.store->Pull();
      worker.store->Push(gradient, kRule);
      ClipGradient(plain, kRule.max_grad_norm, kRule.groups);
      optimizer.Step(params, sender.Send(plain), kRule.learning_rate, kRule.groups);
      if (push % 9 == 4) cluster.servers[static_cast<std::size_t>(push) % 2]->Restart();
    }
    const auto distance = [&] {
      double most = 0;
      for (std::size_t i = 0; i < params.size(); ++i)
        most = std::max(most, std::abs(double{params[i]} - worker.store->params()[i]));
      return most;
    };
    calm = true;
    for (int pull = 0; pull < 300; ++pull) worker.store->Refresh();
    EXPECT_LT(distance(), 1e-3) << codec;
    StateWriter state;
    worker.store->Save(state);
    EXPECT_EQ(distance(), 0) << codec;
  }
}

// ----------------------------------------------------------------------------------------- what goes wrong

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CompressedRefused, OtherCodecsAreNamed) {
  TestCluster cluster(Compressed(TestTerms(Pace::kAsync), "int8"));
  TestWorker first(cluster, 1);
  first.store->Pull();
  RunTerms other = cluster.terms;
  other.compress = "onebit";
  TestWorker second(cluster, other, 2, false, 30);
  const auto refuses = [](TestWorker& worker, const std::string& theirs) {
    const std::string why = ErrorOf([&] { worker.store->Pull(); });
    EXPECT_NE(why.find("has compress \"int8\", the worker \"" + theirs + "\""), std::string::npos) << why;
  };
  refuses(second, "onebit");
  other = TestTerms(Pace::kAsync);
  TestWorker third(cluster, other, 3, false, 30);
  refuses(third, "none");
  first.store->Refresh();  // goes on
}

// A worker that knows a codec which this server does not.
TEST(CompressedRefused, UnknownCodecsAreNamed) {
  Greeting greeting{.worker = 1, .terms = TestTerms(Pace::kAsync)};
  greeting.terms.compress = "gzip";
  EXPECT_NE(ErrorOf([&] { Greeting::Decode(greeting.Encode()); }).find("called 'gzip'"), std::string::npos);
  greeting.terms.compress = "int8";
  greeting.terms.compress_params = "powersgd=4";
  EXPECT_NE(ErrorOf([&] { Greeting::Decode(greeting.Encode()); }).find("powersgd=4"), std::string::npos);
}

// A damaged gradient ends its stream and nothing else.
TEST(CompressedRefused, DamagedGradients) {
  for (const Pace pace : {Pace::kAsync, Pace::kSync}) {
    RunTerms terms = Compressed(TestTerms(pace, 2), "int8");
    terms.backup_workers = pace == Pace::kSync ? 1 : 0;
    TestCluster cluster(terms);
    TestWorker good(cluster, 1), bad(cluster, 2);
    OnThreads(2, [&](int i) { (i == 0 ? good : bad).session.Join(); });
    const std::size_t due = MakeCodec("int8")->bytes(terms.params);
    const auto send = [&](std::size_t encoded, std::size_t floats, std::uint8_t byte) {
      ServerLink& link = bad.session.link(0);
      Header header = link.MakeRequest(MessageKind::kPush);
      header.encoded = static_cast<std::uint32_t>(encoded);
      header.floats = floats;
      header.learning_rate = 0.1f;
      MessageWriter message(header);
      std::memset(message.encoded().data(), byte, encoded);
      std::memset(message.floats(), 0, floats * sizeof(float));
      link.Ask(header, message.Take());
      Header answer;
      const std::string why = ErrorOf([&] { link.Answer(answer); });
      link.Forget();
      bad.session.Join();
      return why;
    };
    EXPECT_NE(send(due, 0, 0xFF).find("scale of"), std::string::npos);  // scales that are not numbers
    EXPECT_NE(send(due - 1, 0, 0).find("are due by int8"), std::string::npos);
    EXPECT_NE(send(0, terms.params, 0).find("are due by int8"), std::string::npos);
    std::vector<float> gradient = Draw(0, 0, terms.params);
    good.store->Push(gradient, kRule);
    EXPECT_EQ(good.session.version(0), 1u);
  }
}

TEST(CompressedRefused, ResidualsOfAnotherNetwork) {
  TestCluster cluster(Compressed(TestTerms(Pace::kSync, 1), "int8"));
  TestWorker worker(cluster, 1);
  worker.session.Join();
  StateWriter out;
  GradientEncoder("int8", {{0, 77}}).Save(0, out);
  const std::string why = ErrorOf([&] { worker.store->LoadOwn(StateReader(out.Encode())); });
  EXPECT_NE(why.find("belongs to another network"), std::string::npos) << why;
}

// Whoever comes when the memory for what workers hold is full is sent everything.
TEST(HeldParamsTest, MemoryIsBounded) {
  HeldParams held("int8", 100, 2 * 100 * sizeof(float));
  std::vector<std::byte> message(held.message_bytes());
  const std::vector<float> params = Draw(0, 0, 100);
  std::uint64_t numbers[4] = {};
  for (std::uint64_t worker = 1; worker <= 3; ++worker) {
    numbers[worker] = held.NextNumber();
    EXPECT_FALSE(held.Encode(worker, 0, numbers[worker], params, message));
  }
  EXPECT_TRUE(held.Encode(1, numbers[1], held.NextNumber(), params, message));
  EXPECT_FALSE(held.Encode(1, numbers[1], held.NextNumber(), params, message));  // an answer was missed
  EXPECT_FALSE(held.Encode(3, numbers[3], held.NextNumber(), params, message));
  held.Forget(2);
  const std::uint64_t next = held.NextNumber();
  EXPECT_FALSE(held.Encode(3, numbers[3], next, params, message));
  EXPECT_TRUE(held.Encode(3, next, held.NextNumber(), params, message));
}

}  // namespace
}  // namespace trireme
