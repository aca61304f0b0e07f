#include "trireme/plan/forecast.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

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
    c.network = {.latency_s = 5e-5, .bytes_per_s = 1e9};
    c.trip_worker = c.trip_server = {.fixed_s = 1e-9, .s_per_float = 0};
    table_.SetOrigin("", "measured");
    table_.SetOrigin("network_", "--latency");
  }
  const ForecastRow& Row(const Forecast& forecast, Way way, int workers) const {
    for (const ForecastRow& row : forecast.rows) {
      if (row.way == way && row.workers == workers) return row;
    }
    ADD_FAILURE() << WayName(way) << " " << workers;
    return forecast.rows.front();
  }

  ConstantTable table_;
};

TEST_F(ForecastTest, EveryWayHasPowersOfTwo) {
  const Forecast forecast = MakeForecast(table_.values, {.workers_up_to = 100, .cores = 2});
  std::map<Way, std::vector<int>> workers;
  for (const ForecastRow& row : forecast.rows) workers[row.way].push_back(row.workers);
  const std::vector<int> powers = {1, 2, 4, 8, 16, 32, 64};
  for (const Way way : {Way::kAllReduce, Way::kServerSync, Way::kAsync, Way::kSsp}) {
    EXPECT_EQ(workers[way], powers) << WayName(way);
  }
  EXPECT_EQ(workers[Way::kShared], (std::vector<int>{1, 2}));  // what fits one host
  EXPECT_EQ(Row(forecast, Way::kAllReduce, 1).speedup, 1);
  EXPECT_LT(Row(forecast, Way::kAsync, 1).speedup, 1);  // the way to the server
  EXPECT_EQ(Row(forecast, Way::kAllReduce, 64).outcome.hosts, 32);
}

TEST_F(ForecastTest, OneHostIsShared) {
  const Forecast forecast = MakeForecast(table_.values, {.workers_up_to = 8, .hosts = 1, .cores = 2});
  EXPECT_FALSE(Row(forecast, Way::kShared, 2).beyond_processors);
  EXPECT_TRUE(Row(forecast, Way::kShared, 8).beyond_processors);
  EXPECT_LE(Row(forecast, Way::kShared, 8).speedup, 2.01);
  EXPECT_TRUE(Contains(ForecastTable(forecast, table_), "+8"));
}

TEST_F(ForecastTest, RowsThatNoRunCanHaveAreMarked) {
  const Forecast split = MakeForecast(table_.values, {.workers_up_to = 128});
  EXPECT_FALSE(Row(split, Way::kAllReduce, 64).beyond_shards);
  EXPECT_TRUE(Row(split, Way::kAllReduce, 128).beyond_shards);
  EXPECT_FALSE(Row(split, Way::kAsync, 128).beyond_shards);
  EXPECT_TRUE(Contains(ForecastTable(split, table_), "*128"));
  const Forecast grow = MakeForecast(table_.values, {.workers_up_to = 128, .split = false});
  EXPECT_FALSE(Row(grow, Way::kAllReduce, 128).beyond_shards);
  EXPECT_GT(Row(grow, Way::kAllReduce, 128).speedup, Row(split, Way::kAllReduce, 128).speedup);
}

TEST_F(ForecastTest, TheTableStatesTheConstantsAndWhereTheyCameFrom) {
  const std::string text = ForecastTable(MakeForecast(table_.values, {.workers_up_to = 2}), table_);
  EXPECT_TRUE(Contains(text, "round_split_s                1.00 ms  measured"));
  EXPECT_TRUE(Contains(text, "network_latency_s            50.0 us  --latency"));
}

TEST_F(ForecastTest, MeasuredPointsAreMarkedInThePicture) {
  Forecast forecast = MakeForecast(table_.values, {.workers_up_to = 4});
  EXPECT_FALSE(Contains(ForecastPlot(forecast).ToSvg(), "measured"));
  forecast.checks.push_back({.way = Way::kAllReduce,
                             .store = "allreduce",
                             .workers = 2,
                             .predicted_steps_per_s = 190,
                             .measured_steps_per_s = 200,
                             .predicted_speedup = 1.9,
                             .measured_speedup = 2});
  const LinePlot plot = ForecastPlot(forecast);
  int measured = 0;
  for (const PlotSeries& series : plot.series) {
    EXPECT_EQ(series.markers, Contains(series.name, "measured")) << series.name;
    if (!series.markers) continue;
    ++measured;
    EXPECT_EQ(series.x, std::vector<double>{1});  // log2 of 2
    EXPECT_EQ(series.y, std::vector<double>{1});
  }
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(plot.series.back().name, "ideal");
  EXPECT_TRUE(Contains(ForecastTable(forecast, table_), "-5.0 %"));
}

TEST_F(ForecastTest, JsonHoldsConstantsRowsAndChecks) {
  Forecast forecast = MakeForecast(table_.values, {.workers_up_to = 4, .slow = {.worker = 1, .factor = 5}});
  forecast.notes.push_back("a note");
  const auto json = nlohmann::json::parse(ForecastJson(forecast, table_));
  EXPECT_EQ(json["env"], "CartPole-v1");
  EXPECT_EQ(json["constants"]["floats"]["value"], 10'000);
  EXPECT_EQ(json["constants"]["network_bytes_per_s"]["origin"], "--latency");
  EXPECT_EQ(json["constants"]["round_times"]["value"], nlohmann::json::array({1000}));
  EXPECT_EQ(json["straggler"]["factor"], 5);
  EXPECT_EQ(json["rows"].size(), 4u * 3 + 1);
  EXPECT_EQ(json["rows"][0]["way"], "allreduce");
  EXPECT_EQ(json["rows"][0]["speedup"], 1);
  EXPECT_TRUE(json["rows"][0]["staleness"].is_null());
  EXPECT_TRUE(json["rows"].back()["staleness"]["histogram"].is_array());
  EXPECT_TRUE(json["validation"].empty());
  EXPECT_EQ(json["notes"][0], "a note");
}

TEST_F(ForecastTest, WaysThroughServersAreLeftOutWhenNobodyKnowsWhatATripCosts) {
  for (TripCost* const end : {&table_.values.trip_worker, &table_.values.trip_server}) {
    const TripCost before = *end;
    *end = {};
    const Forecast forecast = MakeForecast(table_.values, {.workers_up_to = 4, .hosts = 1});
    for (const ForecastRow& row : forecast.rows) EXPECT_FALSE(ThroughServers(row.way)) << WayName(row.way);
    EXPECT_EQ(Row(forecast, Way::kAllReduce, 4).workers, 4);
    EXPECT_EQ(Row(forecast, Way::kShared, 4).workers, 4);
    const std::string text = ForecastTable(forecast, table_), svg = ForecastPlot(forecast).ToSvg();
    for (const char* way : {"server-sync", "async", "ssp"}) {
      EXPECT_FALSE(Contains(text, std::string("\n") + way + ":")) << text;
      EXPECT_FALSE(Contains(svg, std::string(way) + ", simulated"));
    }
    *end = before;
  }
}

TEST_F(ForecastTest, WhereServersRunIsAPartOfTheQuestion) {
  table_.values.trip_server = {.fixed_s = 1e-4, .s_per_float = 0};
  ForecastQuestion question{.workers_up_to = 2, .hosts = 1, .cores = 2, .overlap = true};
  const Forecast own = MakeForecast(table_.values, question);
  question.servers_on_workers = true;
  const Forecast shared = MakeForecast(table_.values, question);
  EXPECT_LT(Row(shared, Way::kAsync, 2).outcome.steps_per_s, Row(own, Way::kAsync, 2).outcome.steps_per_s);
  EXPECT_EQ(Row(shared, Way::kAllReduce, 2).outcome.steps_per_s,
            Row(own, Way::kAllReduce, 2).outcome.steps_per_s);
  EXPECT_FALSE(Contains(ForecastTable(own, table_), "on the workers' hosts"));
  const std::string text = ForecastTable(shared, table_);
  EXPECT_TRUE(Contains(
      text, "async: 1 server on the workers' hosts, each push applied at once, computing meanwhile"));
  const auto json = nlohmann::json::parse(ForecastJson(shared, table_));
  EXPECT_EQ(json["servers_on"], "workers");
  EXPECT_EQ(json["overlap"], true);
  EXPECT_EQ(nlohmann::json::parse(ForecastJson(own, table_))["servers_on"], "own");
}

TEST_F(ForecastTest, TheSameSeedGivesTheSameText) {
  table_.values.round_times = {700, 1000, 1300};
  const auto text = [&](std::uint64_t seed) {
    return ForecastJson(MakeForecast(table_.values, {.workers_up_to = 16, .seed = seed}), table_);
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

}  // namespace
}  // namespace trireme
