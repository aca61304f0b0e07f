// The best policy of a run through servers, whose leader dies.
#include <algorithm>
#include <csignal>
#include <string>

#include "server_util.h"

namespace trireme::testing {
namespace {

class BestPolicyTest : public ServerCliTest {
 protected:
  // Learns fast and forgets again; every iteration is evaluated.
  Args Run(const std::string& name, const Args& more) const {
    return Set(
        SmallRun(name) + Args{"--store", "server", "--servers", Address(server_), "--workers", "1"} + more,
        {"steps=20480", "learning_rate=0.05", "lease_s=0.5", "eval_every=512", "checkpoint_every_s=0"});
  }
  // The row of the best evaluation, the later one of equals.
  Json BestRow(const std::vector<Json>& rows) const {
    Json best = {{"eval_return_mean", -1.0}};
    for (const Json& row : rows) {
      if (row["eval_return_mean"].is_null()) continue;
      if (row["eval_return_mean"] >= best["eval_return_mean"]) best = row;
    }
    return best;
  }
  double BestEvaluation(const std::vector<Json>& rows) const { return BestRow(rows)["eval_return_mean"]; }
  // What the result calls its best is what the folder holds.
  void ExpectKept(const std::string& name, const Json& result) const {
    const Json eval = ResultOf(RunTrireme({"eval", Path(name), "--episodes", "8", "--json"}));
    EXPECT_EQ(eval["which"], "best");
    EXPECT_EQ(eval["steps"], result["best_steps"]);
    EXPECT_EQ(eval["eval_return_mean"], result["best_return_mean"]);
    EXPECT_EQ(eval["eval_return_std"], result["best_return_std"]);
  }

  std::string server_ = "server";
};

// Who moves in step with a leader has its best policy when it takes over. With so large a rate it is one of the first, and
// nothing is learned ever after; now and then something is, since it depends on when the leader dies what comes then.
TEST_F(BestPolicyTest, SurvivesTheLeaderOfWorkersInStep) {
  for (int seed = 4; seed < 12; ++seed) {
    server_ = fmt::format("server{}", seed);
    const auto server = StartServer(server_);
    const std::string one = fmt::format("first{}", seed), other = fmt::format("second{}", seed);
    const Args both = {"--seed",        std::to_string(seed), "--set",
                       "run_workers=2", "--straggler",        "worker=0,factor=20"};
    const auto run = [&](const std::string& name) {
      return Set(Run(name, both),
                 {"learning_rate=0.2", "learning_rate_schedule=constant", "normalise_obs=true"});
    };
    Process first(kBinary, run(one));
    ASSERT_TRUE(first.RunsUntil([&] { return Said(server_, "worker 0 joined"); }));
    Process second(kBinary, run(other));
    ASSERT_TRUE(first.RunsUntil([&] { return MetricLines(one) >= 12; }));
    first.Signal(SIGKILL);
    first.Wait();
    const Json result = ResultOf(second.Wait());
    const Json best = BestRow(TimelessRows(Path(one)));
    if (best["eval_return_mean"] <= BestEvaluation(TimelessRows(Path(other)))) continue;
    EXPECT_EQ(result["best_steps"], best["step"]);
    EXPECT_EQ(result["best_return_mean"], best["eval_return_mean"]);
    return ExpectKept(other, result);
  }
  FAIL() << "the best was never that of the first: choose other seeds";
}

TEST_F(BestPolicyTest, IsKeptByWhoeverLeadsWorkersOnTheirOwn) {
  const auto server = StartServer("server");
  const Args slowly = {"--async", "--straggler", "worker=0,factor=20"};
  Process first(kBinary, Run("first", slowly));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 1; })) << first.Wait().err;
  Process second(kBinary, Run("second", slowly));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 6; }));
  first.Signal(SIGKILL);
  first.Wait();
  const Json result = ResultOf(second.Wait());
  EXPECT_EQ(result.value("best_return_mean", 0.0), BestEvaluation(TimelessRows(Path("second"))));
  ExpectKept("second", result);
  // The one before kept its own, as far as its last checkpoint goes.
  const Json before = ResultOf(RunTrireme({"eval", Path("first"), "--json"}));
  EXPECT_LE(before["best_return_mean"], BestEvaluation(TimelessRows(Path("first"))));
}

}  // namespace
}  // namespace trireme::testing
