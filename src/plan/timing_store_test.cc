#include "trireme/plan/timing_store.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/comm/thread_communicator.h"

namespace trireme {
namespace {

void ComputeFor(double seconds) {
  const double end_s = ThreadSeconds() + seconds;
  while (ThreadSeconds() < end_s) {
  }
}

class TimingStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ParameterStore> Inner() {
    return MakeAllReduceStore(comm_, {.kind = OptimizerKind::kSgd}, std::vector<float>(4, 1.0f));
  }

  ThreadGroup group_{1};
  ThreadCommunicator comm_{group_, 0};
};

TEST_F(TimingStoreTest, NotesWhatLiesBetweenPushes) {
  TimingStore store(Inner(), 1);
  std::vector<float> gradient(6);
  store.Start();
  store.BeginIteration();
  ComputeFor(0.02);
  store.Push(gradient, {.learning_rate = 0.1f});
  ComputeFor(0.005);
  std::vector<double> shared = {1, 2, 3};
  store.Share(shared);
  ComputeFor(0.005);
  store.Push(gradient, {.learning_rate = 0.1f});
  const TimingStore::Account& account = store.account();
  ASSERT_EQ(account.rounds.size(), 2u);
  EXPECT_EQ(account.rounds[0].position, 0);
  EXPECT_EQ(account.rounds[1].position, 1);
  EXPECT_GE(account.rounds[0].compute_s, 0.02);
  EXPECT_GE(account.rounds[1].compute_s, 0.01);
  EXPECT_LT(account.rounds[1].compute_s, account.rounds[0].compute_s + 0.01);
  EXPECT_EQ(account.push_floats, 6u);
  EXPECT_EQ(account.shares, 1u);
  EXPECT_EQ(account.share_bytes, 24u);
}

TEST_F(TimingStoreTest, APauseIsNoComputing) {
  TimingStore store(Inner(), 1);
  std::vector<float> gradient(4);
  store.Start();
  store.Pause();
  ComputeFor(0.2);
  store.Resume();
  store.Push(gradient, {});
  EXPECT_LT(store.account().rounds.at(0).compute_s, 0.1);
}

TEST_F(TimingStoreTest, AnswersAsIfTheOthersHadSentTheSame) {
  TimingStore store(Inner(), 4);
  std::vector<float> gradient = {1, 2, 3, 4, 5};
  store.Push(gradient, {.learning_rate = 0.5f});
  EXPECT_EQ(gradient, (std::vector<float>{4, 8, 12, 16, 20}));
  EXPECT_EQ(store.params()[1], 1.0f - 0.5f * 8);
  std::vector<double> shared = {1.5};
  store.Share(shared);
  EXPECT_EQ(shared[0], 6);
}

}  // namespace
}  // namespace trireme
