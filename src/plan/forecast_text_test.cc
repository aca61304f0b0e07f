// What forecast_text.cc makes of checks: predictions beside real runs.

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/plan/forecast.h"

namespace trireme {
namespace {

class ForecastTextTest : public ::testing::Test {
 protected:
  ForecastTextTest() {
    table_.values.floats = 1;
    table_.values.steps_per_round = 1;
    table_.values.round_split_s = 1;
    forecast_ = MakeForecast(table_.values, {.workers_up_to = 1});
    forecast_.checks.push_back({.way = Way::kAllReduce,
                                .store = "allreduce",
                                .workers = 1,
                                .predicted_steps_per_s = 90,
                                .measured_steps_per_s = 100,
                                .predicted_speedup = 1,
                                .measured_speedup = 1});
    forecast_.checks.push_back({.way = Way::kAsync,
                                .store = "server",
                                .workers = 2,
                                .predicted_steps_per_s = 60,
                                .measured_steps_per_s = 50,
                                .predicted_speedup = 0.75,
                                .measured_speedup = 0.5,
                                .processors_had = std::numeric_limits<double>::quiet_NaN(),
                                .predicted_staleness = 1,
                                .measured_staleness = 1.25});
  }
  // The line of the table of checks that begins with this way.
  std::string LineOf(const std::string& way) const {
    const std::string text = ForecastTable(forecast_, table_);
    const std::size_t table = text.find("validation: ");
    const std::size_t begin = text.find(way, table);
    EXPECT_NE(begin, std::string::npos) << text;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  ConstantTable table_;
  Forecast forecast_;
};

TEST_F(ForecastTextTest, ChecksStateBothErrors) {
  EXPECT_EQ(LineOf("allreduce"),
            "allreduce        1          90         100   -10.0 %        1.00        1.00    +0.0 %    100 %"
            "           -           -");
  EXPECT_EQ(LineOf("async"),
            "async        2          60          50   +20.0 %        0.75        0.50   +50.0 %        -"
            "        1.00        1.25");
}

// Workers of a server wait, so how much they had of the processors says nothing about other programs.
TEST_F(ForecastTextTest, WarnsWhenRunsDidNotHaveTheirProcessors) {
  const auto warned = [&] {
    return ForecastTable(forecast_, table_).find("validates little") != std::string::npos;
  };
  EXPECT_FALSE(warned());
  forecast_.checks[0].processors_had = 0.8;
  EXPECT_TRUE(warned());
}

TEST_F(ForecastTextTest, JsonHasNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(ForecastJson(forecast_, table_));
  ASSERT_EQ(json["validation"].size(), 2u);
  const auto& replicas = json["validation"][0];
  const auto& async = json["validation"][1];
  EXPECT_EQ(replicas["processors_had"], 1);
  EXPECT_TRUE(replicas["measured_staleness"].is_null());
  EXPECT_EQ(async["way"], "async");
  EXPECT_EQ(async["store"], "server");
  EXPECT_TRUE(async["processors_had"].is_null());
  EXPECT_EQ(async["predicted_staleness"], 1);
  EXPECT_EQ(async["measured_staleness"], 1.25);
}

}  // namespace
}  // namespace trireme
