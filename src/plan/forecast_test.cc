#include "trireme/plan/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace trireme {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ForecastTest : public ::testing::Test {
 protected:
  ForecastTest() {
    PlanConstants& c = constants_;
    c.env = "CartPole-v1";
    c.algo = "a2c";
    c.floats = 10'000;
    c.steps_per_round = 128;
    c.round_split_s = 0.001;
    c.shared_s = 1e-9;
    c.trip = {1e-9, 1e-9, 0};
    c.origins = {{"", "measured"}, {"network_", "--latency-us"}};
  }
  Forecast Make(int workers_up_to, const Scenario& scenario = {}) const {
    return MakeForecast(constants_, {.workers_up_to = workers_up_to, .scenario = scenario, .straggler = ""});
  }
  const ForecastRow& RowOf(const Forecast& forecast, const PlanWay& way, int workers) const {
    for (const ForecastRow& row : forecast.rows) {
      if (row.way == &way && row.workers == workers) return row;
    }
    ADD_FAILURE() << way.name << " " << workers;
    return forecast.rows.front();
  }
  double Speedup(const Forecast& forecast, const PlanWay& way, int workers) const {
    return RowOf(forecast, way, workers).outcome.steps_per_s / forecast.one_worker_steps_per_s;
  }
  // After one worker alone, that was predicted exactly.
  static Forecast WithCheck(Forecast forecast, double predicted, double measured) {
    if (forecast.checks.empty()) forecast.Add(Check(kAllReduceWay, 1, 1, 1));
    forecast.Add(Check(kAsyncWay, 2, predicted, measured));
    return forecast;
  }
  static ForecastRow Check(const PlanWay& way, int workers, double predicted, double measured) {
    ForecastRow check{.way = &way, .workers = workers};
    check.outcome.steps_per_s = 50 * predicted;
    check.outcome.staleness.Add(1);
    check.measured = {
        .wall_s = 1 / (50 * measured), .cpu_s = workers / (50 * measured), .staleness_mean = 1.25};
    return check;
  }
  std::string TextOf(const Forecast& forecast) const { return MakeReport(forecast, constants_).ToText(); }
  LinePlot PlotOf(const Forecast& forecast) const { return MakeReport(forecast, constants_).plot; }
  Json JsonFor(const Forecast& forecast) const {
    return Json::parse(MakeReport(forecast, constants_).ToJson());
  }

  PlanConstants constants_;
};

TEST_F(ForecastTest, EveryWayHasPowersOfTwo) {
  const Forecast forecast = Make(100, {.cores = 2});
  std::map<std::string_view, std::vector<int>> workers;
  for (const ForecastRow& row : forecast.rows) workers[row.way->name].push_back(row.workers);
  for (const char* way : {"allreduce", "async", "ssp"}) {
    EXPECT_EQ(workers[way], (std::vector<int>{1, 2, 4, 8, 16, 32, 64})) << way;
  }
  EXPECT_EQ(workers["shared"], (std::vector<int>{1, 2}));  // what fits one host
  EXPECT_EQ(Speedup(forecast, kAllReduceWay, 1), 1);
  EXPECT_LT(Speedup(forecast, kAsyncWay, 1), 1);  // the way to the server
  EXPECT_EQ(RowOf(forecast, kAllReduceWay, 64).outcome.hosts, 32);
}

TEST_F(ForecastTest, RowsThatNoRunCanHaveAreMarked) {
  const std::string text = TextOf(Make(128));
  EXPECT_TRUE(Contains(text, "   *128 ")) << text;
  EXPECT_TRUE(Contains(text, "    128 ")) << text;  // async
  EXPECT_FALSE(Contains(text, "*64"));
  EXPECT_TRUE(Contains(text, "64 shards at most"));
  EXPECT_FALSE(Contains(TextOf(Make(64)), "64 shards at most"));
}

TEST_F(ForecastTest, TheTextStatesConstantsAndWhatWasAsked) {
  Forecast forecast = Make(2, {.cores = 2, .servers_on = ServersOn::kWorkers, .overlap = true});
  forecast.question.straggler = "worker=1,factor=5";
  const std::string text = TextOf(forecast);
  for (const char* part :
       {"\nround_split_s             1.00 ms  measured ", "\nnetwork_latency_s         30.0 us  --latency-us",
        "a2c, workers_up_to 2, cores 2, servers 1, servers_on workers, ssp 3, straggler "
        "worker=1,factor=5, overlap true, seed 1\n",
        "with its own parameters: 128k steps/s\n"}) {
    EXPECT_TRUE(Contains(text, part)) << part << text;
  }
}

TEST_F(ForecastTest, JsonHoldsQuestionConstantsAndRows) {
  Forecast forecast = Make(4, {.servers_on = ServersOn::kWorkers});
  forecast.question.straggler = "worker=1,factor=5";
  forecast.notes.emplace_back("a note");
  const Json json = JsonFor(forecast);
  EXPECT_EQ(json["env"], "CartPole-v1");
  EXPECT_EQ(json["servers_on"], "workers");
  EXPECT_EQ(json["constants"]["floats"]["value"], 10'000);
  EXPECT_EQ(json["constants"]["network_bytes_per_s"]["origin"], "--latency-us");
  EXPECT_EQ(json["constants"]["round_times"]["value"], Json::array({1000}));
  EXPECT_EQ(json["straggler"], "worker=1,factor=5");
  ASSERT_EQ(json["rows"].size(), 3u * 3 + 1);
  EXPECT_EQ(json["rows"][0]["way"], "allreduce");
  EXPECT_EQ(json["rows"][0]["speedup"], 1);
  EXPECT_TRUE(json["rows"][0]["staleness"].is_null());
  EXPECT_TRUE(json["rows"].back()["staleness"]["histogram"].is_array());
  EXPECT_TRUE(json["validation"].empty());
  EXPECT_EQ(json["notes"][0], "a note");
}

TEST_F(ForecastTest, WaysOfWhichNothingIsKnownAreLeftOut) {
  constants_.trip = {};
  constants_.shared_s = 0;
  const Forecast forecast = Make(4);
  for (const ForecastRow& row : forecast.rows) EXPECT_TRUE(row.way->in_step) << row.way->name;
  const std::string text = TextOf(forecast), svg = PlotOf(forecast).ToSvg();
  for (const std::string way : {"async", "ssp", "shared"}) {
    EXPECT_FALSE(Contains(text, "\n" + way + ":")) << text;
    EXPECT_FALSE(Contains(svg, way + ", simulated"));
  }
}

TEST_F(ForecastTest, ChecksStandBesideTheirPrediction) {
  const Forecast forecast = WithCheck(Make(4), 1.8, 2);
  const std::string text = TextOf(forecast);
  EXPECT_TRUE(Contains(
      text,
      "\nallreduce        1           50          50   +0.0 %         1.00        1.00   +0.0 %  100 %"
      "            -            -\n"
      "async            2           90         100  -10.0 %         1.80        2.00  -10.0 %      -"
      "         1.00         1.25\n"))
      << text;
  const Json check = JsonFor(forecast)["validation"][1];
  EXPECT_EQ(check["store"], "server");
  EXPECT_TRUE(check["processors_had"].is_null());
  EXPECT_EQ(check["measured_staleness"], 1.25);
  std::vector<std::string> measured;
  for (const PlotSeries& series : PlotOf(forecast).series) {
    if (!series.markers) continue;
    measured.push_back(series.name);
    if (series.name != "async, measured") continue;
    EXPECT_EQ(series.x, std::vector<double>{1});  // log2 of 2
    EXPECT_EQ(series.y, std::vector<double>{1});
  }
  EXPECT_EQ(measured, (std::vector<std::string>{"allreduce, measured", "async, measured"}));
}

TEST_F(ForecastTest, AWayWhoseCheckWasFarOffIsNotPredicted) {
  EXPECT_EQ(WithCheck(Make(2), 1.14, 1).not_predicted.size(), Make(2).not_predicted.size());
  EXPECT_EQ(WithCheck(WithCheck(Make(2), 1.16, 1), 1, 1).not_predicted.count(&kAsyncWay), 1u);
  const Forecast off = WithCheck(Make(2), 1.16, 1);
  EXPECT_TRUE(
      Contains(TextOf(off), "\nnot predicted: with 2 workers here the speed-up was predicted +16 % off\n"));
  EXPECT_FALSE(Contains(PlotOf(off).ToSvg(), "async, simulated"));
  const Json json = JsonFor(off);
  EXPECT_TRUE(json["not_predicted"].contains("async"));
  for (const Json& row : json["rows"]) EXPECT_NE(row["way"], "async");
}

// Whatever is known and measured.
TEST_F(ForecastTest, WaysWithoutASimulationSaySo) {
  const Forecast forecast = Make(2);
  const std::string text = TextOf(forecast);
  for (const PlanWay* const way : kPlanWays) {
    const bool predicted = way->not_predicted.empty();
    const bool has_rows = std::ranges::find(forecast.rows, way, &ForecastRow::way) != forecast.rows.end();
    EXPECT_EQ(has_rows, predicted) << way->name;
    const std::string why =
        fmt::format("\n{}: {}\nnot predicted: {}\n", way->name, way->round, way->not_predicted);
    EXPECT_EQ(Contains(text, why), !predicted) << way->name << text;
    EXPECT_EQ(JsonFor(forecast)["not_predicted"].contains(way->name), !predicted);
  }
}

TEST_F(ForecastTest, WarnsWhenRunsDidNotHaveTheirProcessors) {
  Forecast forecast = WithCheck(Make(1), 1, 1);
  EXPECT_FALSE(Contains(TextOf(forecast), "validates little"));
  forecast.checks[0].measured.cpu_s *= 0.8;
  EXPECT_TRUE(Contains(TextOf(forecast), "validates little"));
}

TEST_F(ForecastTest, TheSameSeedGivesTheSameText) {
  constants_.round_times = {700, 1000, 1300};
  const auto text = [&](std::uint64_t seed) {
    return MakeReport(Make(16, {.seed = seed}), constants_).ToJson();
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

}  // namespace
}  // namespace trireme
