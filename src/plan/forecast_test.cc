#include "trireme/plan/forecast.h"

#include <gtest/gtest.h>

#include <map>

namespace trireme {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ForecastTest : public ::testing::Test {
 protected:
  ForecastTest() {
    PlanConstants& c = table_.values;
    c.env = "CartPole-v1";
    c.algo = "a2c";
    c.floats = 10'000;
    c.steps_per_round = 128;
    c.round_split_s = 0.001;
    c.shared_s = 1e-9;
    c.sync_trip = c.async_trip = {1e-9, 1e-9, 0};
    table_.SetOrigin("", "measured");
    table_.SetOrigin("network_", "--latency");
  }
  Forecast Make(int workers_up_to, const Scenario& scenario = {}) const {
    return MakeForecast(table_.values, {.workers_up_to = workers_up_to, .scenario = scenario});
  }
  const ForecastRow& Row(const Forecast& forecast, const PlanWay& way, int workers) const {
    for (const ForecastRow& row : forecast.rows) {
      if (row.way == &way && row.workers == workers) return row;
    }
    ADD_FAILURE() << way.name << " " << workers;
    return forecast.rows.front();
  }
  static Forecast WithCheck(Forecast forecast, double predicted, double measured) {
    forecast.Add({.way = &kAsyncWay,
                  .workers = 2,
                  .predicted_steps_per_s = 60,
                  .measured_steps_per_s = 50,
                  .predicted_speedup = predicted,
                  .measured_speedup = measured,
                  .predicted_staleness = 1,
                  .measured_staleness = 1.25});
    return forecast;
  }
  Json JsonFor(const Forecast& forecast) const { return Json::parse(ForecastJson(forecast, table_)); }

  ConstantTable table_;
};

TEST_F(ForecastTest, EveryWayHasPowersOfTwo) {
  const Forecast forecast = Make(100, {.cores = 2});
  std::map<std::string_view, std::vector<int>> workers;
  for (const ForecastRow& row : forecast.rows) workers[row.way->name].push_back(row.workers);
  for (const char* way : {"allreduce", "server-sync", "async", "ssp"}) {
    EXPECT_EQ(workers[way], (std::vector<int>{1, 2, 4, 8, 16, 32, 64})) << way;
  }
  EXPECT_EQ(workers["shared"], (std::vector<int>{1, 2}));  // what fits one host
  EXPECT_EQ(Row(forecast, kAllReduceWay, 1).speedup, 1);
  EXPECT_LT(Row(forecast, kAsyncWay, 1).speedup, 1);  // the way to the server
  EXPECT_EQ(Row(forecast, kAllReduceWay, 64).outcome.hosts, 32);
}

TEST_F(ForecastTest, RowsThatNoRunCanHaveAreMarked) {
  const Forecast split = Make(128), grow = Make(128, {.split = false}),
                 one = Make(8, {.hosts = 1, .cores = 2});
  EXPECT_FALSE(Row(split, kAllReduceWay, 64).beyond_shards);
  EXPECT_TRUE(Row(split, kAllReduceWay, 128).beyond_shards);
  EXPECT_FALSE(Row(split, kAsyncWay, 128).beyond_shards);
  EXPECT_TRUE(Contains(ForecastTable(split, table_), "*128"));
  EXPECT_FALSE(Row(grow, kAllReduceWay, 128).beyond_shards);
  EXPECT_GT(Row(grow, kAllReduceWay, 128).speedup, Row(split, kAllReduceWay, 128).speedup);
  EXPECT_FALSE(Row(one, kSharedWay, 2).beyond_processors);
  EXPECT_TRUE(Contains(ForecastTable(one, table_), "+8"));
}

TEST_F(ForecastTest, TheTableStatesConstantsAndWhereServersRun) {
  const std::string text =
      ForecastTable(Make(2, {.servers_on_workers = true, .overlap = true, .hosts = 1, .cores = 2}), table_);
  EXPECT_TRUE(Contains(text, "round_split_s                1.00 ms  measured")) << text;
  EXPECT_TRUE(Contains(text, "network_latency_s            30.0 us  --latency")) << text;
  EXPECT_TRUE(Contains(text, "1 server on the workers' hosts, computing meanwhile")) << text;
  EXPECT_FALSE(Contains(ForecastTable(Make(2), table_), "on the workers' hosts"));
}

TEST_F(ForecastTest, JsonHoldsQuestionConstantsAndRows) {
  Forecast forecast = Make(4, {.servers_on_workers = true, .slow = {.worker = 1, .factor = 5}});
  forecast.notes.emplace_back("a note");
  const Json json = JsonFor(forecast);
  EXPECT_EQ(json["env"], "CartPole-v1");
  EXPECT_EQ(json["servers_on"], "workers");
  EXPECT_EQ(json["constants"]["floats"]["value"], 10'000);
  EXPECT_EQ(json["constants"]["network_bytes_per_s"]["origin"], "--latency");
  EXPECT_EQ(json["constants"]["round_times"]["value"], Json::array({1000}));
  EXPECT_EQ(json["straggler"]["factor"], 5);
  ASSERT_EQ(json["rows"].size(), 4u * 3 + 1);
  EXPECT_EQ(json["rows"][0]["way"], "allreduce");
  EXPECT_EQ(json["rows"][0]["speedup"], 1);
  EXPECT_TRUE(json["rows"][0]["staleness"].is_null());
  EXPECT_TRUE(json["rows"].back()["staleness"]["histogram"].is_array());
  EXPECT_TRUE(json["validation"].empty());
  EXPECT_EQ(json["notes"][0], "a note");
}

TEST_F(ForecastTest, WaysOfWhichNothingIsKnownAreLeftOut) {
  table_.values.async_trip = {};
  table_.values.shared_s = 0;
  const Forecast forecast = Make(4);
  for (const ForecastRow& row : forecast.rows) EXPECT_TRUE(row.way->in_step) << row.way->name;
  const std::string text = ForecastTable(forecast, table_), svg = ForecastPlot(forecast).ToSvg();
  for (const std::string way : {"async", "ssp", "shared"}) {
    EXPECT_FALSE(Contains(text, "\n" + way + ":")) << text;
    EXPECT_FALSE(Contains(svg, way + ", simulated"));
  }
}

TEST_F(ForecastTest, ChecksStandBesideTheirPrediction) {
  const Forecast forecast = WithCheck(Make(4), 1.8, 2);
  EXPECT_TRUE(Contains(ForecastTable(forecast, table_),
                       "       async        2          60          50   +20.0 %        1.80        2.00"
                       "   -10.0 %        -        1.00        1.25\n"));
  const Json check = JsonFor(forecast)["validation"][0];
  EXPECT_EQ(check["store"], "server");
  EXPECT_TRUE(check["processors_had"].is_null());
  EXPECT_EQ(check["measured_staleness"], 1.25);
  int measured = 0;
  for (const PlotSeries& series : ForecastPlot(forecast).series) {
    if (!series.markers) continue;
    ++measured;
    EXPECT_EQ(series.name, "async, measured");
    EXPECT_EQ(series.x, std::vector<double>{1});  // log2 of 2
    EXPECT_EQ(series.y, std::vector<double>{1});
  }
  EXPECT_EQ(measured, 1);
}

// What ways.h says counts where there is no check.
TEST_F(ForecastTest, AWayWhoseCheckWasFarOffIsNotPredicted) {
  for (const PlanWay* const way : kPlanWays) {
    EXPECT_EQ(Make(2).not_predicted.contains(way), !way->not_predicted.empty()) << way->name;
  }
  Forecast near = Make(2);
  near.not_predicted[&kAsyncWay] = "never tried";
  near = WithCheck(near, 1.14, 1);
  EXPECT_FALSE(near.not_predicted.contains(&kAsyncWay));
  EXPECT_EQ(near.not_predicted.size(), Make(2).not_predicted.size());
  EXPECT_TRUE(WithCheck(WithCheck(Make(2), 1.16, 1), 1, 1).not_predicted.contains(&kAsyncWay));
  const Forecast off = WithCheck(Make(2), 1.16, 1);
  const std::string text = ForecastTable(off, table_);
  EXPECT_TRUE(Contains(text, "not predicted: with 2 workers here the speed-up was predicted +16 % off\n"));
  EXPECT_TRUE(Contains(text, "       2      2         -         -          -")) << text;
  EXPECT_FALSE(Contains(ForecastPlot(off).ToSvg(), "async, simulated"));
  const Json json = JsonFor(off);
  EXPECT_TRUE(json["not_predicted"].contains("async"));
  for (const Json& row : json["rows"]) {
    const bool predicted = !json["not_predicted"].contains(row["way"]);
    EXPECT_EQ(row["predicted"], predicted);
    EXPECT_EQ(row["speedup"].is_null(), !predicted);
  }
}

TEST_F(ForecastTest, WarnsWhenRunsDidNotHaveTheirProcessors) {
  Forecast forecast = WithCheck(Make(1), 1, 1);
  EXPECT_FALSE(Contains(ForecastTable(forecast, table_), "validates little"));
  forecast.checks[0].processors_had = 0.8;
  EXPECT_TRUE(Contains(ForecastTable(forecast, table_), "validates little"));
}

TEST_F(ForecastTest, TheSameSeedGivesTheSameText) {
  table_.values.round_times = {700, 1000, 1300};
  const auto text = [&](std::uint64_t seed) { return ForecastJson(Make(16, {.seed = seed}), table_); };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

}  // namespace
}  // namespace trireme
