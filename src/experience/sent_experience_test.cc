#include "trireme/experience/sent_experience.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/experience/conformance.h"
#include "trireme/experience/memory_channel.h"

namespace trireme {
namespace {

void SendAs(ActorEnd& actor, int number, std::uint64_t policy) {
  Trajectory trajectory;
  Mark(trajectory, 0, number);
  trajectory.policy = policy;
  ASSERT_TRUE(actor.Send(trajectory));
}

TEST(SentExperience, PublishesAndTakesWhatAnUpdateNeeds) {
  MemoryChannel channel(8);
  const auto actor = channel.MakeActorEnd();
  SentExperience experience(channel.MakeLearnerEnd(), 2, 0, {});
  for (int number = 0; number < 4; ++number) SendAs(*actor, number, 1);
  auto taken = experience.Next(std::vector<float>{1, 2});
  ASSERT_EQ(taken.size(), 2u);
  ExpectMarked(*taken[0], 0, 0);
  ExpectMarked(*taken[1], 0, 1);
  EXPECT_EQ(actor->Newest()->params, (std::vector<float>{1, 2}));
  taken = experience.Next(std::vector<float>{3, 4});
  ExpectMarked(*taken[0], 0, 2);
  EXPECT_EQ(actor->Newest()->params, (std::vector<float>{3, 4}));
  EXPECT_EQ(actor->Newest()->version, 2u);
  EXPECT_EQ(experience.received().lag.pushes[0], 2u);
  EXPECT_EQ(experience.received().lag.pushes[1], 2u);
  EXPECT_EQ(experience.received().lag.mean(), 0.5);
  EXPECT_EQ(experience.received().too_old, 0u);
}

TEST(SentExperience, LeavesOutWhatIsTooOld) {
  MemoryChannel channel(8);
  const auto actor = channel.MakeActorEnd();
  SentExperience experience(channel.MakeLearnerEnd(), 1, 1, {});
  SendAs(*actor, 0, 1);
  experience.Next(std::vector<float>{1});
  SendAs(*actor, 1, 1);
  experience.Next(std::vector<float>{2});
  SendAs(*actor, 2, 1);  // two versions behind when it is taken
  SendAs(*actor, 3, 2);
  const auto taken = experience.Next(std::vector<float>{3});
  ExpectMarked(*taken[0], 0, 3);
  EXPECT_EQ(experience.received().too_old, 1u);
  EXPECT_EQ(experience.received().lag.most, 1u);
  EXPECT_EQ(experience.received().lag.count(), 3u);
}

// It has missed what others have learned: what they have published is as old for it as for them. By what is newer than all that it
// knows nothing is behind.
TEST(SentExperience, CountsFromWhereOthersAre) {
  MemoryChannel channel(8);
  const auto actor = channel.MakeActorEnd();
  SentExperience experience(channel.MakeLearnerEnd(), 1, 2, {});
  SendAs(*actor, 0, 1);
  experience.Next(std::vector<float>{1});
  experience.CountFrom(10);
  SendAs(*actor, 1, 8);  // too old
  SendAs(*actor, 2, 9);
  ExpectMarked(*experience.Next(std::vector<float>{2})[0], 0, 2);
  EXPECT_EQ(actor->Newest()->version, 11u);
  experience.CountFrom(3);
  SendAs(*actor, 3, 13);
  ExpectMarked(*experience.Next(std::vector<float>{3})[0], 0, 3);
  EXPECT_EQ(actor->Newest()->version, 12u);
  EXPECT_EQ(experience.received().too_old, 1u);
  EXPECT_EQ(experience.received().lag.sum, 2u);
}

std::string Refusal(const char* schedule, int actors, int per_update, std::size_t capacity) {
  try {
    CheckExperienceSchedule(Schedule(schedule, actors + 1), actors, per_update, capacity);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ExperienceSchedule, RefusesWhatWouldWaitForEver) {
  EXPECT_EQ(Refusal("0< 1< 0> 1> 2< 2>", 2, 2, 2), "");
  EXPECT_EQ(Refusal("0< 0> 0< 0> 1< 1>", 1, 2, 2), "");
  EXPECT_EQ(Refusal("0< 0> 0< 0> 1< 1> 1< 1>", 1, 1, 2), "");
  EXPECT_NE(Refusal("0< 0> 0< 0> 1< 1> 1< 1>", 1, 1, 1).find("queue = 1"), std::string::npos);
  EXPECT_NE(Refusal("0< 1< 0> 2< 1> 2>", 2, 2, 2).find("takes 2 trajectories"), std::string::npos);
  EXPECT_NE(Refusal("0< 1< 0> 1> 2< 2>", 2, 1, 2).find("1 more"), std::string::npos);
}

}  // namespace
}  // namespace trireme
