#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/comm/run_ranks.h"
#include "trireme/optim/clip.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

constexpr std::size_t kParams = 100;
const UpdateRule kRule{.learning_rate = 0.01f, .max_grad_norm = 5};

std::vector<float> Draw(int worker, int step) {
  RandomStream random(23, Purpose::kTest, static_cast<std::uint32_t>(worker),
                      static_cast<std::uint64_t>(step));
  std::vector<float> values(kParams);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}
std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

struct Replica {
  std::vector<float> params = Draw(100, 0);
  Optimizer optimizer{{}, kParams};
};

// Two workers that make `every` updates on their own, then average parameters and moments.
std::vector<Replica> ByHand(int every, int steps) {
  std::vector<Replica> replicas(2);
  const auto average = [](std::span<float> a, std::span<float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
  };
  for (int step = 0; step < steps; ++step) {
    for (int worker = 0; worker < 2; ++worker) {
      std::vector<float> gradient = Draw(worker, step);
      for (float& value : gradient) value *= 2;
      ClipGradient(gradient, kRule.max_grad_norm, kRule.groups);
      replicas[worker].optimizer.Step(replicas[worker].params, gradient, kRule.learning_rate);
    }
    if (step % every != every - 1) continue;
    average(replicas[0].params, replicas[1].params);
    for (std::size_t m = 0; m < 2; ++m)
      average(replicas[0].optimizer.moments()[m].span(), replicas[1].optimizer.moments()[m].span());
  }
  return replicas;
}

void Train(ParameterStore& store, int worker, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    std::vector<float> gradient = Draw(worker, step);
    gradient.push_back(static_cast<float>(worker + step));
    store.Push(gradient, kRule);
    EXPECT_EQ(gradient[kParams], static_cast<float>(2 * step + 1));  // of all workers, at every update
  }
}

TEST(LocalStepsStore, IsWhatItIsByHand) {
  for (const int every : {1, 3, 4}) {
    for (const int steps : {6, 7, 8}) {
      const std::vector<Replica> expected = ByHand(every, steps);
      RunRanks(2, [&](Communicator& comm) {
        const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 0), every);
        Train(*store, comm.rank(), 0, steps);
        EXPECT_EQ(Copy(store->params()), expected[comm.rank()].params) << every << " " << steps;
      });
      EXPECT_EQ(expected[0].params == expected[1].params, steps % every == 0);
    }
  }
}

TEST(LocalStepsStore, TheAverageIsShownAndChangesNothing) {
  const std::vector<Replica> replicas = ByHand(4, 6), later = ByHand(4, 9);
  RunRanks(2, [&](Communicator& comm) {
    const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 0), 4);
    Train(*store, comm.rank(), 0, 6);
    store->Refresh();
    for (std::size_t i = 0; i < kParams; ++i)
      EXPECT_EQ(store->params()[i], (replicas[0].params[i] + replicas[1].params[i]) / 2);
    EXPECT_EQ(Copy(store->Pull()), replicas[comm.rank()].params);
    EXPECT_EQ(Copy(store->params()), replicas[comm.rank()].params);
    Train(*store, comm.rank(), 6, 9);
    EXPECT_EQ(Copy(store->params()), later[comm.rank()].params);
  });
}

TEST(LocalStepsStore, GoesOnExactlyBetweenAverages) {
  for (const int saved_after : {4, 6}) {
    std::vector<std::string> states(2);
    RunRanks(2, [&](Communicator& comm) {
      const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 0), 4);
      Train(*store, comm.rank(), 0, saved_after);
      store->Refresh();
      StateWriter out;
      store->SaveOwn(out);
      if (comm.rank() == 0) store->Save(out);
      states[static_cast<std::size_t>(comm.rank())] = out.Encode();
    });
    StateWriter all;
    for (const std::string& state : states) all.Merge(state);
    const StateReader in(all.Encode());
    const std::vector<Replica> expected = ByHand(4, 11), before = ByHand(4, saved_after);
    RunRanks(2, [&](Communicator& comm) {
      const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 1), 4);
      store->Load(in);
      EXPECT_EQ(store->LoadOwn(in), "");
      Train(*store, comm.rank(), saved_after, 11);
      EXPECT_EQ(Copy(store->params()), expected[comm.rank()].params) << saved_after;
    });
    // Others in number begin with the average.
    RunRanks(4, [&](Communicator& comm) {
      const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 1), 4);
      store->Load(in);
      EXPECT_EQ(store->LoadOwn(in).empty(), saved_after == 4);
      for (std::size_t i = 0; i < kParams; ++i)
        EXPECT_EQ(store->params()[i], (before[0].params[i] + before[1].params[i]) / 2);
    });
  }
}

TEST(LocalStepsStore, WhatIsNotFiniteIsRefusedByAll) {
  RunRanks(2, [&](Communicator& comm) {
    const auto store = MakeLocalStepsStore(comm, {}, Draw(100, 0), 4);
    std::vector<float> gradient = Draw(0, 0);
    if (comm.rank() == 1) gradient[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(std::isfinite(store->Push(gradient, kRule)));
    EXPECT_EQ(Copy(store->params()), Draw(100, 0));
  });
}

}  // namespace
}  // namespace trireme
