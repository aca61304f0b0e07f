// Through real actors and learners: see tests/cli/plan_test.cc.
#include "trireme/plan/actors.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme {
namespace {

class PlanActorsTest : public ::testing::Test {
 protected:
  ActorForecast Predict(int actors) const { return PredictActors(constants_, question_, actors); }
  void ExpectLimit(int actors, std::string_view limit, double steps_per_s) const {
    const ActorForecast row = Predict(actors);
    EXPECT_EQ(row.limit, limit) << actors;
    EXPECT_NEAR(row.steps_per_s, steps_per_s, 1e-6 * steps_per_s) << actors;
  }

  // A trajectory of 100 steps takes 100 ms, its way to the learner 0.1 ms, and a policy back 1 ms.
  ActorConstants constants_ = {.env = "Env",
                               .algo = "impala",
                               .actor_steps_per_s = 1000,
                               .actor_processors = 0.25,
                               .learner_steps_per_s = 10'000,
                               .trajectory_steps = 100,
                               .trajectory_bytes = 1000,
                               .policy_bytes = 10'000,
                               .trajectories_per_update = 8,
                               .network = {.latency_s = 0, .bytes_per_s = 1e7}};
  ActorQuestion question_ = {.cores = 2};
};

TEST_F(PlanActorsTest, ActorsAddUpUntilTheLearnerIsTheLimit) {
  ExpectLimit(1, "actors", 1000);
  ExpectLimit(10, "actors", 10'000);
  ExpectLimit(16, "learner", 10'000);
  EXPECT_EQ(Predict(16).sum_steps_per_s, 16'000);
}

TEST_F(PlanActorsTest, ActorsShareTheProcessorsOfTheirHosts) {
  EXPECT_EQ(Predict(1).hosts, 1);
  EXPECT_EQ(Predict(5).hosts, 3);  // one for each processor
  constants_.learner_steps_per_s = 1e9;
  question_.hosts = 1;
  ExpectLimit(8, "actors", 8000);  // two processors full
  ExpectLimit(16, "processors", 8000);
  question_.hosts = 4;
  ExpectLimit(32, "actors", 32'000);
  ExpectLimit(33, "processors", 32'000);  // one host has nine
  ExpectLimit(64, "processors", 32'000);
  EXPECT_EQ(Predict(3).hosts, 3);
  constants_.actor_processors = 3;  // its environments compute beside it
  ExpectLimit(4, "processors", 4000 * 2 / 3.0);
}

TEST_F(PlanActorsTest, AnActorIsAheadOfItsAnswersByTwoTrajectories) {
  constants_.network = {.latency_s = 0.2, .bytes_per_s = 1e15};
  ExpectLimit(1, "latency", 2 * 100 / 0.4);
  EXPECT_NEAR(Predict(1).sum_steps_per_s, 500, 1e-6);  // alone it is no faster
  ExpectLimit(16, "latency", 16 * 500);
  ExpectLimit(32, "learner", 10'000);
}

// Up to eight actors share the news of an update.
TEST_F(PlanActorsTest, TheLinkOfTheLearnerCarriesTrajectoriesInAndPoliciesOut) {
  constants_.learner_steps_per_s = constants_.actor_steps_per_s = 1e9;
  const double in = 1e7 / 1000 * 100, out = 1e7 / 10'000 * 100;
  question_.cores = 1000;
  EXPECT_EQ(Predict(8).limit, "network");
  EXPECT_NEAR(Predict(8).steps_per_s, out, 1e-6 * out);
  EXPECT_NEAR(Predict(8).link_busy, 1, 1e-6);
  EXPECT_NEAR(Predict(800).steps_per_s, out, 1e-6 * out);
  constants_.policy_bytes = 100;
  EXPECT_NEAR(Predict(800).steps_per_s, in, 1e-6 * in);
}

TEST_F(PlanActorsTest, TheReportHasPowersOfTwoAndWhatWasAskedFor) {
  question_.up_to = 12;
  constants_.origins = {{"network_", "assumed"}, {"network_latency", "--latency-us"}};
  const CommandReport report = MakeActorReport(constants_, question_, {"a note"});
  const Json json = Json::parse(report.ToJson());
  std::vector<int> actors;
  for (const Json& row : json["rows"]) actors.push_back(row["actors"].get<int>());
  EXPECT_EQ(actors, (std::vector<int>{1, 2, 4, 8, 12}));
  EXPECT_EQ(json["rows"][4]["limit"], "learner");
  EXPECT_EQ(json["rows"][4]["steps_per_s"], 10'000);
  EXPECT_EQ(json["rows"][4]["sum_steps_per_s"], 12'000);
  EXPECT_EQ(json["constants"]["network_latency_s"]["origin"], "--latency-us");
  EXPECT_EQ(json["constants"]["network_bytes_per_s"]["origin"], "assumed");
  EXPECT_EQ(json["constants"]["learner_steps_per_s"]["origin"], "measured");
  EXPECT_EQ(json["notes"][0], "a note");
  const std::string text = report.ToText();
  EXPECT_NE(text.find("a note"), std::string::npos) << text;
  EXPECT_NE(text.find("impala on Env, actors on hosts with 2 cores"), std::string::npos) << text;
}

// How much is a matter of the machine.
TEST_F(PlanActorsTest, MeasuresARealActorAndARealLearner) {
  const auto settings = [](const std::string& listen) {
    auto made = std::make_unique<RunSettings>("CartPole-v1", "impala");
    for (const char* each : {"envs=16", "horizon=16", "hidden=[16]", "shards=4", "rounds=2", "workers=1"})
      made->fields.ApplyAssignment(each, "test");
    made->run.listen = listen;
    made->Resolve();
    return made;
  };
  std::atomic<bool> stop{false};
  const ActorConstants c = MeasureActors(settings, 0.2, stop);
  EXPECT_EQ(c.env, "CartPole-v1");
  EXPECT_EQ(c.algo, "impala");
  EXPECT_EQ(c.trajectory_steps, 16 * 4);
  EXPECT_EQ(c.trajectories_per_update, 4);
  // Observations of four numbers, actions, log-probabilities and rewards, and two flags.
  EXPECT_GE(c.trajectory_bytes, 17 * 4 * 4 * 4 + 16 * 4 * (3 * 4 + 2));
  EXPECT_GT(c.actor_steps_per_s, 0);
  EXPECT_GT(c.actor_processors, 0);
  EXPECT_GT(c.learner_steps_per_s, 0);
  const Network network(
      settings("shm:/nowhere")->algorithm->MakeNetwork(settings("shm:/nowhere")->env().spec));
  EXPECT_GE(c.policy_bytes, 4.0 * static_cast<double>(network.param_count()));
  stop = true;
  EXPECT_THROW(MeasureActors(settings, 3600, stop), Error);
}

}  // namespace
}  // namespace trireme
