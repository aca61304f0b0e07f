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
TEST(MemoryChannel, TheEndReachesEveryone) { ExpectTheEndReachesEveryone(Make); }

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
