// Compressed sums of gradients between processes, which are groups of threads here, against what they are by hand.
#include "trireme/store/gradient_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/codec/codec.h"
#include "trireme/codec/gradient_encoder.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/optimizer.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

constexpr std::size_t kParams = 1000;
const UpdateRule kRule{.learning_rate = 0.01f, .max_grad_norm = 20};

std::vector<float> Draw(int worker, int step, std::size_t size = kParams) {
  RandomStream random(22, Purpose::kTest, static_cast<std::uint32_t>(worker),
                      static_cast<std::uint64_t>(step));
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}
std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

// Runs body(worker, inside, between) on the threads of some processes.
template <class Body>
void OnProcesses(int processes, int threads, Body&& body) {
  std::vector<std::unique_ptr<ThreadGroup>> inside;
  for (int p = 0; p < processes; ++p) inside.push_back(std::make_unique<ThreadGroup>(threads));
  ThreadGroup between(processes);
  std::vector<std::thread> all;
  for (int worker = 0; worker < processes * threads; ++worker) {
    all.emplace_back([&, worker] {
      ThreadCommunicator own(*inside[worker / threads], worker % threads);
      ThreadCommunicator leaders(between, worker / threads);
      body(worker, own, processes == 1 || worker % threads > 0 ? nullptr : &leaders);
    });
  }
  for (std::thread& thread : all) thread.join();
}

// Threads are added as they are, then processes, each through the codec with a residual of its own.
std::vector<float> ByHand(const std::string& name, int processes, int threads, int steps) {
  const auto codec = MakeCodec(name);
  std::vector<CodecState> states;
  for (int p = 0; p < processes; ++p) states.push_back(codec->MakeState(kParams));
  std::vector<float> params = Draw(100, 0);
  Optimizer optimizer({}, kParams);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> sum(kParams);
    for (int p = 0; p < processes; ++p) {
      std::vector<float> own = Draw(p * threads, step), said(kParams);
      for (int t = 1; t < threads; ++t) {
        const std::vector<float> other = Draw(p * threads + t, step);
        for (std::size_t i = 0; i < kParams; ++i) own[i] += other[i];
      }
      std::vector<std::byte> message(codec->bytes(kParams));
      codec->Encode(own, states[p], message);
      codec->Decode(message, said);
      for (std::size_t i = 0; i < kParams; ++i) sum[i] = p == 0 ? said[i] : sum[i] + said[i];
    }
    ClipGradient(sum, kRule.max_grad_norm, kRule.groups);
    optimizer.Step(params, sum, kRule.learning_rate);
  }
  return params;
}

void Train(ParameterStore& store, int worker, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    std::vector<float> gradient = Draw(worker, step);
    gradient.push_back(0.25f);
    gradient.push_back(static_cast<float>(worker));
    store.Push(gradient, kRule);
  }
}

// One of two processes.
std::unique_ptr<ParameterStore> MakeStore(Communicator& inside, Communicator* between,
                                          const std::string& codec) {
  return MakeAllReduceStore(inside, {}, Draw(100, 0), MakeCompressedSum(inside, between, 2, codec, kParams));
}

TEST(CompressedSum, IsWhatItIsByHandOnEveryWorker) {
  for (const char* codec : {"fp16", "bf16", "int8", "onebit", "topk=0.01", "powersgd=4"}) {
    for (const int threads : {1, 2}) {
      const std::vector<float> expected = ByHand(codec, 2, threads, 7);
      OnProcesses(2, threads, [&](int worker, Communicator& inside, Communicator* between) {
        const auto store = MakeStore(inside, between, codec);
        Train(*store, worker, 0, 7);
        EXPECT_TRUE(Copy(store->params()) == expected) << codec << " worker " << worker;
        const Traffic traffic = store->traffic();
        EXPECT_EQ(traffic.bytes_saved > 0, inside.rank() == 0);
      });
    }
  }
}

TEST(CompressedSum, StatisticsAreExact) {
  OnProcesses(4, 2, [&](int worker, Communicator& inside, Communicator* between) {
    const auto sum = MakeCompressedSum(inside, between, 4, "onebit", kParams);
    std::vector<float> gradient = Draw(worker, 0);
    gradient.push_back(0.25f);
    gradient.push_back(static_cast<float>(worker));
    sum->Sum(gradient, kParams);
    EXPECT_EQ(gradient[kParams], 2);
    EXPECT_EQ(gradient[kParams + 1], 28);
  });
}

// A gradient that overflows on one worker: all learn it, statistics are there, and what was left out does not come
// later.
TEST(CompressedSum, AGradientThatIsNotFiniteIsLeftOutByAll) {
  for (const char* codec : {"fp16", "bf16", "onebit"}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      OnProcesses(2, 2, [&](int worker, Communicator& inside, Communicator* between) {
        const auto store = MakeStore(inside, between, codec);
        Train(*store, worker, 0, 3);
        const std::vector<float> before = Copy(store->params());
        const double residual = store->ResidualNorm();
        std::vector<float> gradient = Draw(worker, 100);
        gradient.push_back(0.25f);
        if (worker == 1) gradient[5] = bad;
        EXPECT_FALSE(std::isfinite(store->Push(gradient, kRule)));
        EXPECT_EQ(gradient[kParams], 1);
        EXPECT_TRUE(Copy(store->params()) == before);
        EXPECT_NEAR(store->ResidualNorm(), residual, 1e-4 * residual) << codec;
        gradient = Draw(worker, 101);
        EXPECT_TRUE(std::isfinite(store->Push(gradient, kRule)));
        EXPECT_FALSE(Copy(store->params()) == before);
      });
    }
  }
}

// What all workers saved, as one checkpoint.
std::string TrainAndSave(const std::string& codec, int steps) {
  std::vector<std::string> states(4);
  OnProcesses(2, 2, [&](int worker, Communicator& inside, Communicator* between) {
    const auto store = MakeStore(inside, between, codec);
    Train(*store, worker, 0, steps);
    StateWriter out;
    store->SaveOwn(out);
    if (worker == 0) store->Save(out);
    states[static_cast<std::size_t>(worker)] = out.Encode();
  });
  StateWriter all;
  for (const std::string& state : states) all.Merge(state);
  return all.Encode();
}

TEST(CompressedSum, ResumedWithAsManyProcessesIsExact) {
  for (const char* codec : {"int8", "topk=0.01", "powersgd=4"}) {
    const StateReader in(TrainAndSave(codec, 4));
    const std::vector<float> expected = ByHand(codec, 2, 2, 9);
    OnProcesses(2, 2, [&](int worker, Communicator& inside, Communicator* between) {
      const auto store = MakeStore(inside, between, codec);
      store->Load(in);
      EXPECT_EQ(store->LoadOwn(in), "");
      Train(*store, worker, 4, 9);
      EXPECT_TRUE(Copy(store->params()) == expected) << codec;
    });
  }
}

// With other numbers of processes, none of what was not sent is lost.
TEST(CompressedSum, ResumedWithOthersKeepsTheSumOfAllResiduals) {
  const StateReader in(TrainAndSave("topk=0.01", 4));
  const std::vector<float> owed = GradientEncoder::SumOfAll(in);
  EXPECT_EQ(GradientEncoder::SavedIn(in), 2);
  for (const int processes : {1, 4}) {
    std::vector<float> sum;
    OnProcesses(processes, 1, [&](int worker, Communicator& inside, Communicator* between) {
      const auto one = MakeCompressedSum(inside, between, processes, "topk=1", kParams);  // sends everything
      EXPECT_NE(one->LoadOwn(in), "");
      std::vector<float> gradient(kParams);
      one->Sum(gradient, kParams);
      if (worker == 0) sum = gradient;
      one->Sum(gradient, kParams);  // once
    });
    EXPECT_EQ(sum, owed) << processes;
  }
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto plain = MakePlainSum(comm);
  EXPECT_NE(plain->LoadOwn(in), "");
  std::vector<float> gradient(kParams);
  plain->Sum(gradient, kParams);
  EXPECT_EQ(gradient, owed);
  plain->Sum(gradient, kParams);
  EXPECT_EQ(gradient, owed);
}

TEST(CompressedSum, OneProcessSendsAndLosesNothing) {
  OnProcesses(1, 2, [&](int worker, Communicator& inside, Communicator* between) {
    const auto compressed = MakeCompressedSum(inside, between, 1, "onebit", kParams);
    std::vector<float> a = Draw(worker, 0), b = a;
    compressed->Sum(a, kParams);
    MakePlainSum(inside)->Sum(b, kParams);
    EXPECT_EQ(a, b);
    EXPECT_EQ(compressed->traffic().bytes_saved, 0);
  });
}

}  // namespace
}  // namespace trireme
