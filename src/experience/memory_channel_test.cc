#include "trireme/experience/memory_channel.h"

#include <gtest/gtest.h>

#include "trireme/experience/conformance.h"

namespace trireme {
namespace {

class InMemory final : public TestedChannel {
 public:
  explicit InMemory(std::size_t capacity) : channel_(capacity), learner_(channel_.MakeLearnerEnd()) {}
  LearnerEnd& learner() override { return *learner_; }
  std::unique_ptr<ActorEnd> MakeActorEnd() override { return channel_.MakeActorEnd(); }
  void End(const std::string& why) override { channel_.End(why); }

 private:
  MemoryChannel channel_;
  std::unique_ptr<LearnerEnd> learner_;
};

std::unique_ptr<TestedChannel> Make(std::size_t capacity) { return std::make_unique<InMemory>(capacity); }

TEST(MemoryChannel, OrderIsKept) { ExpectOrderIsKept(Make); }
TEST(MemoryChannel, EachOnce) { ExpectEachOnce(Make); }
TEST(MemoryChannel, ItIsBounded) { ExpectItIsBounded(Make); }
TEST(MemoryChannel, TheNewestPolicy) { ExpectTheNewestPolicy(Make); }
TEST(MemoryChannel, TheEndReachesWhoWaitsForAPolicy) { ExpectTheEndReachesWhoWaitsForAPolicy(Make); }
TEST(MemoryChannel, TheEndReachesEveryone) { ExpectTheEndReachesEveryone(Make); }

// A learner for whom nothing comes may give up.
TEST(MemoryChannel, AWaitCanBeGivenUp) {
  MemoryChannel channel(1, [](double waited_s) {
    if (waited_s > 0) Fail("enough after {} seconds", waited_s);
  });
  const auto learner = channel.MakeLearnerEnd();
  Trajectory taken;
  EXPECT_THROW(learner->Take(taken), Error);
}

// Who may not wait for room is told that there is none, and keeps what it has.
TEST(MemoryChannel, AnOfferWaitsForNobody) {
  MemoryChannel channel(1);
  const auto learner = channel.MakeLearnerEnd();
  EXPECT_EQ(channel.newest(), nullptr);
  learner->Publish(std::vector<float>{1});
  ASSERT_NE(channel.newest(), nullptr);
  EXPECT_EQ(channel.newest()->version, 1u);
  Trajectory first, second, taken;
  Mark(first, 0, 1);
  Mark(second, 0, 2);
  EXPECT_TRUE(channel.Offer(first));
  EXPECT_FALSE(channel.Offer(second));
  ExpectMarked(second, 0, 2);
  learner->Take(taken);
  ExpectMarked(taken, 0, 1);
  EXPECT_TRUE(channel.Offer(second));
  learner->Take(taken);
  ExpectMarked(taken, 0, 2);
  channel.End("over");
  EXPECT_EQ(channel.newest(), nullptr);
  EXPECT_FALSE(channel.Offer(taken));
}

// Memory goes round: nothing is allocated once as many trajectories are under way as there can be.
TEST(MemoryChannel, MemoryGoesRound) {
  MemoryChannel channel(2);
  const auto learner = channel.MakeLearnerEnd();
  const auto actor = channel.MakeActorEnd();
  Trajectory sent, taken;
  std::vector<const float*> seen;
  for (int number = 0; number < 30; ++number) {
    Mark(sent, 0, number);
    const float* memory = sent.obs.data();
    if (std::ranges::find(seen, memory) == seen.end()) seen.push_back(memory);
    ASSERT_TRUE(actor->Send(sent));
    learner->Take(taken);
  }
  EXPECT_LE(seen.size(), 3u);
}

}  // namespace
}  // namespace trireme
