#include "trireme/plan/speedup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SpeedupQuestion InStep(int processors = 2) {
  SpeedupQuestion question{.run = {}, .processors = processors};
  question.run.steps = 1000;
  return question;
}
SpeedupQuestion Asynchronous() {
  SpeedupQuestion question = InStep();
  question.run.store = "shared";
  return question;
}
SpeedupQuestion ToTarget() {
  SpeedupQuestion question = InStep();
  question.run.target = 475;
  question.run.stop_at_target = true;
  return question;
}

// 1000 steps by default, split evenly; every worker is busy all the time.
RunFacts RunOf(int workers, double wall_s, std::int64_t steps = 1000) {
  RunFacts run;
  run.workers = workers;
  run.steps = steps;
  run.wall_s = wall_s;
  run.cpu_s = workers * wall_s;
  run.steps_per_s = static_cast<double>(steps) / wall_s;
  run.per_worker.assign(workers, {.steps = steps / workers, .busy_s = wall_s, .idle_s = 0});
  return run;
}
RunFacts RunTo(int workers, std::optional<double> time_to_target_s) {
  RunFacts run = RunOf(workers, 10);
  run.time_to_target_s = time_to_target_s;
  return run;
}

Json JsonOf(const SpeedupQuestion& question, const std::vector<RunFacts>& runs, bool interrupted = false) {
  const std::string text = MakeReport(question, runs, interrupted).ToJson();
  EXPECT_FALSE(Contains(text, "\n"));
  return Json::parse(text);
}
Json Rows(const SpeedupQuestion& question, const std::vector<RunFacts>& runs) {
  return JsonOf(question, runs)["rows"];
}
std::string TableOf(const SpeedupQuestion& question, const std::vector<RunFacts>& runs,
                    bool interrupted = false) {
  return MakeReport(question, runs, interrupted).ToText();
}

TEST(DefaultWorkerCounts, PowersOfTwoUpToTwiceTheProcessors) {
  using Counts = std::vector<int>;
  EXPECT_EQ(DefaultWorkerCounts(1, {}), (Counts{1, 2}));
  EXPECT_EQ(DefaultWorkerCounts(6, {}), (Counts{1, 2, 4, 8}));
  EXPECT_EQ(DefaultWorkerCounts(6, 4), (Counts{1, 2, 4}));
  EXPECT_EQ(DefaultWorkerCounts(1000, {}).back(), 64);
}

TEST(Speedup, InStepIsTheRatioOfMedianWallTimes) {
  const Json rows = Rows(InStep(), {RunOf(1, 8), RunOf(2, 5), RunOf(4, 2), RunOf(1, 9), RunOf(2, 4),
                                    RunOf(4, 3), RunOf(1, 7), RunOf(2, 6), RunOf(4, 4)});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["workers"], 1);
  EXPECT_EQ(rows[0]["runs"], 3);
  EXPECT_EQ(rows[0]["speedup"], 1);
  EXPECT_EQ(rows[1]["wall_s"], 5);
  EXPECT_EQ(rows[1]["cpu_s"], 10);
  EXPECT_EQ(rows[1]["steps_per_s"], 200);
  EXPECT_EQ(rows[1]["speedup"], 8.0 / 5);
  EXPECT_EQ(rows[1]["efficiency"], 0.8);
  EXPECT_EQ(rows[2]["speedup"], 8.0 / 3);
  EXPECT_EQ(rows[1]["over_processors"], false);
  EXPECT_EQ(rows[2]["over_processors"], true);
  for (const char* key : {"time_to_target_s", "staleness_mean"}) EXPECT_TRUE(rows[2][key].is_null());
  EXPECT_TRUE(Rows(InStep(), {RunOf(2, 5), RunOf(4, 3)})[1]["speedup"].is_null());  // relative to nothing
}

// Asynchronous workers end a little after the given steps: wall times would punish that.
TEST(Speedup, AsynchronousIsTheRatioOfRates) {
  RunFacts many = RunOf(4, 1, 1500);
  many.staleness_mean = 1.5;
  const Json rows = Rows(Asynchronous(), {RunOf(1, 2, 1000), many});
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 3);
  EXPECT_DOUBLE_EQ(rows[1]["efficiency"], 0.75);
  EXPECT_EQ(rows[1]["staleness_mean"], 1.5);
}

TEST(Speedup, ToATargetCountsTimesNotStepsAndMissesAsInfinite) {
  const Json json = JsonOf(ToTarget(), {RunTo(1, 6), RunTo(2, 3), RunTo(4, {}),   //
                                        RunTo(1, 8), RunTo(2, {}), RunTo(4, {}),  //
                                        RunTo(1, 7), RunTo(2, 3.5), RunTo(4, 1)});
  EXPECT_EQ(json["target"], 475);
  EXPECT_EQ(json["rows"][0]["reached"], 3);
  EXPECT_EQ(json["rows"][0]["time_to_target_s"], 7);
  EXPECT_EQ(json["rows"][1]["reached"], 2);
  EXPECT_EQ(json["rows"][1]["speedup"], 2);
  EXPECT_EQ(json["rows"][2]["reached"], 1);
  for (const char* key : {"time_to_target_s", "speedup", "efficiency"}) {
    EXPECT_TRUE(json["rows"][2][key].is_null()) << key;
  }
  EXPECT_TRUE(json["runs"][2]["time_to_target_s"].is_null());
  EXPECT_EQ(json["runs"][8]["time_to_target_s"], 1);
}

// In step, a worker five times slower holds up the other: both go at its pace.
TEST(Speedup, KeptIsTheShareOfTheSumOfOwnRates) {
  RunFacts run = RunOf(2, 10);  // 100 steps/s
  run.per_worker = {{.steps = 500, .busy_s = 10, .idle_s = 0}, {.steps = 500, .busy_s = 2, .idle_s = 8}};
  run.bytes_sent = 64'000;
  run.messages_sent = 250;
  const Json row = Rows(InStep(), {run})[0];
  EXPECT_EQ(row["kept"], (50.0 + 50) / (50 + 250));
  EXPECT_EQ(row["idle"], 8.0 / 20);
  EXPECT_EQ(row["bytes_per_step"], 64);
  EXPECT_EQ(row["messages_per_step"], 0.25);
  run.per_worker.assign(2, {});  // nobody worked
  EXPECT_TRUE(Rows(InStep(), {run})[0]["kept"].is_null());
}

TEST(SpeedupTable, OneLinePerRowAndMarksThoseBeyondTheProcessors) {
  const std::string table = TableOf(InStep(), {RunOf(1, 8), RunOf(2, 5), RunOf(4, 4)});
  EXPECT_TRUE(Contains(table, "ppo on CartPole-v1, store allreduce: 1.0k steps, medians of 3 runs")) << table;
  EXPECT_TRUE(Contains(table, "\n      2     1   5.000  10.000      200      1.60        0.80  1.00"))
      << table;
  EXPECT_TRUE(Contains(table, "\n     *4 ")) << table;
  EXPECT_TRUE(Contains(table, "*  more workers than processors (2)\n")) << table;
  for (const char* part : {"*2", "interrupted", "slower"}) EXPECT_FALSE(Contains(table, part)) << table;
  EXPECT_FALSE(Contains(TableOf(InStep(4), {RunOf(4, 4)}), "*"));
}

TEST(SpeedupTable, CountsRunsThatReachedTheTarget) {
  const std::string table = TableOf(ToTarget(), {RunTo(1, 6), RunTo(2, {}), RunTo(1, 8), RunTo(2, {})});
  for (const char* part : {"time to a return of 475", "\n      1      2/2     7.000",
                           "\n      2      0/2         - ", "infinitely long"}) {
    EXPECT_TRUE(Contains(table, part)) << part << table;
  }
}

TEST(SpeedupTable, SaysWhatIsMissingAndWhatWasSlowed) {
  SpeedupQuestion question = InStep();
  question.straggler = {.worker = 1, .factor = 5};
  const std::string table = TableOf(question, {RunOf(2, 8)}, true);
  for (const char* part :
       {"1 worker, which was not measured", "worker 1 was made 5 times slower", "interrupted"}) {
    EXPECT_TRUE(Contains(table, part)) << part << table;
  }
  EXPECT_TRUE(Contains(TableOf(question, {}, true), "nothing was measured"));
  EXPECT_EQ(JsonOf(question, {RunOf(2, 8)}, true)["straggler"]["factor"], 5);
}

TEST(SpeedupPlot, PointsBeyondTheProcessorsAreASeriesOfTheirOwn) {
  const std::vector<RunFacts> runs = {RunOf(1, 8), RunOf(2, 5), RunOf(4, 4)};
  const LinePlot plot = MakeReport(InStep(), runs, false).plot;
  ASSERT_EQ(plot.series.size(), 3u);
  EXPECT_EQ(plot.series[0].x, (std::vector<double>{1, 2}));
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{1, 1.6}));
  EXPECT_EQ(plot.series[1].x, (std::vector<double>{4}));
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{2}));
  EXPECT_EQ(plot.series[2].y, (std::vector<double>{0, 1, 2, 4}));
  EXPECT_EQ(MakeReport(InStep(4), runs, false).plot.series.size(), 2u);
  EXPECT_TRUE(Contains(plot.ToSvg(), ">Speed-up of ppo on CartPole-v1, store allreduce<"));
  EXPECT_EQ(plot.y_label, "time of 1 worker / time of m workers");
  EXPECT_EQ(MakeReport(Asynchronous(), {}, true).plot.y_label, "steps/s relative to 1 worker");
  EXPECT_TRUE(Contains(MakeReport(ToTarget(), {}, true).plot.y_label, "475"));
}

}  // namespace
}  // namespace trireme
