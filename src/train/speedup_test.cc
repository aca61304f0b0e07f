#include "trireme/train/speedup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr double kInf = std::numeric_limits<double>::infinity();

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SpeedupQuestion InStep(int processors = 2) {
  return {.env = "CartPole-v1",
          .algo = "ppo",
          .store = "allreduce",
          .steps = 1000,
          .target = {},
          .processors = processors};
}

SpeedupQuestion Asynchronous() {
  SpeedupQuestion question = InStep();
  question.store = "shared";
  question.asynchronous = true;
  return question;
}

SpeedupQuestion ToTarget() {
  SpeedupQuestion question = InStep();
  question.target = 475;
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
  run.reached_target = time_to_target_s.has_value();
  run.time_to_target_s = time_to_target_s;
  return run;
}

std::vector<SpeedupRow> Rows(const SpeedupQuestion& question, std::vector<RunFacts> runs) {
  return MakeSpeedupReport(question, std::move(runs), false).rows;
}

TEST(Median, MiddleOrMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
  EXPECT_EQ(Median({1, kInf, 2}), 2);
  EXPECT_EQ(Median({1, kInf, kInf}), kInf);
  EXPECT_EQ(Median({1, kInf}), kInf);
  EXPECT_EQ(Median({SpeedupRow::kUnknown, 4, SpeedupRow::kUnknown}), 4);
  EXPECT_TRUE(std::isnan(Median({})));
  EXPECT_TRUE(std::isnan(Median({SpeedupRow::kUnknown})));
}

TEST(DefaultWorkerCounts, PowersOfTwoUpToTwiceTheProcessors) {
  using Counts = std::vector<int>;
  EXPECT_EQ(DefaultWorkerCounts(1, {}), (Counts{1, 2}));
  EXPECT_EQ(DefaultWorkerCounts(2, {}), (Counts{1, 2, 4}));
  EXPECT_EQ(DefaultWorkerCounts(6, {}), (Counts{1, 2, 4, 8}));
  EXPECT_EQ(DefaultWorkerCounts(6, 4), (Counts{1, 2, 4}));
  EXPECT_EQ(DefaultWorkerCounts(6, 1), (Counts{1}));
  EXPECT_EQ(DefaultWorkerCounts(1000, {}).back(), 64);
}

TEST(Speedup, InStepIsTheRatioOfMedianWallTimes) {
  const auto rows = Rows(InStep(), {RunOf(1, 8), RunOf(2, 5), RunOf(4, 2), RunOf(1, 9), RunOf(2, 4),
                                    RunOf(4, 3), RunOf(1, 7), RunOf(2, 6), RunOf(4, 4)});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].workers, 1);
  EXPECT_EQ(rows[0].runs, 3);
  EXPECT_EQ(rows[0].wall_s, 8);
  EXPECT_EQ(rows[0].speedup, 1);
  EXPECT_EQ(rows[0].efficiency, 1);
  EXPECT_EQ(rows[1].wall_s, 5);
  EXPECT_EQ(rows[1].cpu_s, 10);
  EXPECT_EQ(rows[1].steps_per_s, 200);
  EXPECT_DOUBLE_EQ(rows[1].speedup, 8.0 / 5);
  EXPECT_DOUBLE_EQ(rows[1].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(rows[2].speedup, 8.0 / 3);
  EXPECT_TRUE(std::isnan(rows[2].time_to_target_s));
  EXPECT_TRUE(std::isnan(rows[2].staleness_mean));
}

// Asynchronous workers end a little after the given steps: wall times would punish that.
TEST(Speedup, AsynchronousIsTheRatioOfRates) {
  const auto rows = Rows(Asynchronous(), {RunOf(1, 2, 1000), RunOf(4, 1, 1500)});
  EXPECT_DOUBLE_EQ(rows[1].speedup, 3);
  EXPECT_DOUBLE_EQ(rows[1].efficiency, 0.75);
}

TEST(Speedup, ToATargetCountsTimesNotStepsAndMissesAsInfinite) {
  const auto rows = Rows(ToTarget(), {RunTo(1, 6), RunTo(2, 3), RunTo(4, {}),   //
                                      RunTo(1, 8), RunTo(2, {}), RunTo(4, {}),  //
                                      RunTo(1, 7), RunTo(2, 3.5), RunTo(4, 1)});
  EXPECT_EQ(rows[0].reached, 3);
  EXPECT_EQ(rows[0].time_to_target_s, 7);
  EXPECT_EQ(rows[1].reached, 2);
  EXPECT_EQ(rows[1].runs, 3);
  EXPECT_EQ(rows[1].time_to_target_s, 3.5);
  EXPECT_EQ(rows[1].speedup, 2);
  EXPECT_EQ(rows[2].reached, 1);
  EXPECT_EQ(rows[2].time_to_target_s, kInf);
  EXPECT_TRUE(std::isnan(rows[2].speedup));
  EXPECT_TRUE(std::isnan(rows[2].efficiency));
}

TEST(Speedup, NoneWithoutRunsOfOneWorker) {
  const auto rows = Rows(InStep(), {RunOf(2, 5), RunOf(4, 3)});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(std::isnan(rows[0].speedup));
  EXPECT_TRUE(std::isnan(rows[1].efficiency));
  EXPECT_EQ(rows[1].wall_s, 3);
}

// In step, a worker five times slower holds up the other: both go at its pace.
TEST(Kept, ShareOfTheSumOfOwnRates) {
  RunFacts run = RunOf(2, 10);  // 100 steps/s
  run.per_worker = {{.steps = 500, .busy_s = 10, .idle_s = 0}, {.steps = 500, .busy_s = 2, .idle_s = 8}};
  const auto rows = Rows(InStep(), {run});
  EXPECT_DOUBLE_EQ(rows[0].kept, (50.0 + 50) / (50 + 250));
  EXPECT_DOUBLE_EQ(rows[0].idle, 8.0 / 20);
}

TEST(Kept, UnknownWhereNobodyWorked) {
  RunFacts run = RunOf(2, 10);
  run.per_worker.assign(2, {});
  const auto rows = Rows(InStep(), {run});
  EXPECT_TRUE(std::isnan(rows[0].kept));
  EXPECT_TRUE(std::isnan(rows[0].idle));
}

TEST(Speedup, TrafficPerStepAndStaleness) {
  RunFacts run = RunOf(2, 1);
  run.bytes_sent = 64'000;
  run.messages_sent = 250;
  run.staleness_mean = 1.5;
  EXPECT_DOUBLE_EQ(Rows(InStep(), {run})[0].bytes_per_step, 64);
  EXPECT_DOUBLE_EQ(Rows(InStep(), {run})[0].messages_per_step, 0.25);
  EXPECT_DOUBLE_EQ(Rows(Asynchronous(), {run})[0].staleness_mean, 1.5);
}

TEST(SpeedupTable, OneLinePerRowAndMarksThoseBeyondTheProcessors) {
  const std::string table =
      SpeedupTable(MakeSpeedupReport(InStep(), {RunOf(1, 8), RunOf(2, 5), RunOf(4, 4)}, false));
  EXPECT_TRUE(Contains(table, "ppo on CartPole-v1, store allreduce: 1.0k steps, medians of 3 runs")) << table;
  EXPECT_TRUE(Contains(table, "\n      2       1      5.000    10.000      200     1.60       0.80   1.00"))
      << table;
  EXPECT_TRUE(Contains(table, "\n     *4 ")) << table;
  EXPECT_TRUE(Contains(table, "*  more workers than processors (2)\n")) << table;
  EXPECT_FALSE(Contains(table, "*2")) << table;
  EXPECT_FALSE(Contains(table, "interrupted")) << table;
  EXPECT_FALSE(Contains(table, "slower")) << table;
}

TEST(SpeedupTable, SaysNothingOfProcessorsWhereThereAreEnough) {
  const std::string table = SpeedupTable(MakeSpeedupReport(InStep(4), {RunOf(1, 8), RunOf(4, 4)}, false));
  EXPECT_FALSE(Contains(table, "*")) << table;
}

TEST(SpeedupTable, CountsRunsThatReachedTheTarget) {
  const std::string table = SpeedupTable(
      MakeSpeedupReport(ToTarget(), {RunTo(1, 6), RunTo(2, {}), RunTo(1, 8), RunTo(2, {})}, false));
  EXPECT_TRUE(Contains(table, "time to a return of 475")) << table;
  EXPECT_TRUE(Contains(table, "\n      1     2/2      7.000")) << table;
  EXPECT_TRUE(Contains(table, "\n      2     0/2          - ")) << table;
  EXPECT_TRUE(Contains(table, "infinitely long")) << table;
}

TEST(SpeedupTable, SaysWhatIsMissingAndWhatWasSlowed) {
  SpeedupQuestion question = InStep();
  question.straggler = {.worker = 1, .factor = 5};
  const std::string table = SpeedupTable(MakeSpeedupReport(question, {RunOf(2, 8)}, true));
  EXPECT_TRUE(Contains(table, "1 worker, which was not measured")) << table;
  EXPECT_TRUE(Contains(table, "worker 1 was made 5 times slower")) << table;
  EXPECT_TRUE(Contains(table, "interrupted")) << table;
  EXPECT_TRUE(Contains(SpeedupTable(MakeSpeedupReport(question, {}, true)), "nothing was measured"));
}

TEST(SpeedupPlot, PointsBeyondTheProcessorsAreASeriesOfTheirOwn) {
  const LinePlot plot =
      SpeedupPlot(MakeSpeedupReport(InStep(), {RunOf(1, 8), RunOf(2, 5), RunOf(4, 4)}, false));
  ASSERT_EQ(plot.series.size(), 3u);
  EXPECT_EQ(plot.series[0].x, (std::vector<double>{1, 2}));
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{1, 1.6}));
  EXPECT_EQ(plot.series[1].x, (std::vector<double>{4}));
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{2}));
  EXPECT_EQ(plot.series[2].x, plot.series[2].y);
  EXPECT_EQ(plot.series[2].y, (std::vector<double>{0, 1, 2, 4}));
  const std::string svg = plot.ToSvg();
  for (const char* text : {">Speed-up of ppo on CartPole-v1, store allreduce<", ">workers (2 processors)<",
                           ">time of 1 worker / time of m workers<", ">measured<",
                           ">measured, more workers than processors<", ">ideal<"}) {
    EXPECT_TRUE(Contains(svg, text)) << text;
  }
}

TEST(SpeedupPlot, WithEnoughProcessorsThereIsOneSeriesAndTheIdeal) {
  const LinePlot plot = SpeedupPlot(MakeSpeedupReport(InStep(4), {RunOf(1, 8), RunOf(4, 4)}, false));
  EXPECT_EQ(plot.series.size(), 2u);
  EXPECT_FALSE(Contains(plot.ToSvg(), "more workers than processors"));
}

TEST(SpeedupPlot, LabelsFollowTheQuestion) {
  EXPECT_EQ(SpeedupPlot(MakeSpeedupReport(Asynchronous(), {}, true)).y_label, "steps/s relative to 1 worker");
  EXPECT_TRUE(Contains(SpeedupPlot(MakeSpeedupReport(ToTarget(), {}, true)).y_label, "475"));
  SpeedupQuestion slowed = InStep();
  slowed.straggler = {.worker = 0, .factor = 5};
  const LinePlot plot = SpeedupPlot(MakeSpeedupReport(slowed, {}, true));
  EXPECT_TRUE(Contains(plot.title, "worker 0 5 times slower"));
  EXPECT_TRUE(Contains(plot.ToSvg(), ">no data<"));
}

TEST(SpeedupJson, HoldsQuestionRowsAndRuns) {
  SpeedupQuestion question = InStep();
  question.straggler = {.worker = 0, .factor = 5};
  RunFacts reached_by_the_way = RunOf(1, 8);
  reached_by_the_way.time_to_target_s = 1;
  const std::string text = SpeedupJson(MakeSpeedupReport(question, {reached_by_the_way, RunOf(4, 4)}, false));
  EXPECT_FALSE(Contains(text, "\n"));
  const Json json = Json::parse(text);
  EXPECT_EQ(json["env"], "CartPole-v1");
  EXPECT_EQ(json["store"], "allreduce");
  EXPECT_EQ(json["processors"], 2);
  EXPECT_TRUE(json["target"].is_null());
  EXPECT_EQ(json["straggler"]["factor"], 5);
  EXPECT_EQ(json["interrupted"], false);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["over_processors"], false);
  EXPECT_EQ(json["rows"][1]["over_processors"], true);
  EXPECT_EQ(json["rows"][1]["speedup"], 2.0);
  EXPECT_EQ(json["rows"][1]["efficiency"], 0.5);
  EXPECT_EQ(json["rows"][1]["kept"], 1.0);
  EXPECT_TRUE(json["rows"][1]["staleness_mean"].is_null());
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][1]["wall_s"], 4.0);
  EXPECT_TRUE(json["runs"][0]["time_to_target_s"].is_null());
}

TEST(SpeedupJson, WhatIsInfiniteOrUnknownIsNull) {
  const Json json =
      Json::parse(SpeedupJson(MakeSpeedupReport(ToTarget(), {RunTo(1, 5), RunTo(2, {})}, true)));
  EXPECT_EQ(json["target"], 475.0);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["rows"][0]["time_to_target_s"], 5.0);
  EXPECT_EQ(json["rows"][1]["reached"], 0);
  EXPECT_TRUE(json["rows"][1]["time_to_target_s"].is_null());
  EXPECT_TRUE(json["rows"][1]["speedup"].is_null());
  EXPECT_TRUE(json["runs"][1]["time_to_target_s"].is_null());
}

}  // namespace
}  // namespace trireme
