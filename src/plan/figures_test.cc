#include "trireme/plan/figures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Median, MiddleOrMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
  EXPECT_EQ(Median({1, kInf, 2}), 2);
  EXPECT_EQ(Median({1, kInf}), kInf);
  EXPECT_EQ(Median({kUnknown, 4, kUnknown}), 4);
  EXPECT_TRUE(std::isnan(Median({kUnknown})));
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(FormatSeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.00099999), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0), "0.00 ns");
  EXPECT_EQ(FormatSeconds(250), "250 s");
  EXPECT_EQ(FormatSeconds(kInf), "-");
}

TEST(Report, IsTextForPeopleAndJsonForPrograms) {
  Report report{.heading = "what was done"};
  report.facts = {{"seed", 1}};
  report.sections = {
      {"a table",
       "rows",
       {{{"way", "way", "async", "async"}, Decimal("idle", "idle %", 0.125, 1, 100), {"hidden", "", true}},
        {{"way", "way", "ssp", "ssp"}, Decimal("idle", "idle %", kUnknown, 1), {"hidden", "", false}}}},
      {"only text", "", {}},
      {"", "none", {}},
      {"", "rows", {{{"way", "", "shared"}}}}};
  report.notes = {"a note"};
  EXPECT_EQ(report.ToText(),
            "what was done\n"
            "\na table\n"
            "way    idle %\n"
            "async    12.5\n"
            "ssp         -\n"
            "\nonly text\n"
            "a note\n");
  EXPECT_EQ(report.ToJson(),
            R"({"seed":1,"rows":[{"way":"async","idle":0.125,"hidden":true},)"
            R"({"way":"ssp","idle":null,"hidden":false},{"way":"shared"}],"none":[],"notes":["a note"]})");
}

TEST(Report, PlotAddsToTheSeriesOfAName) {
  Report report;
  report.Plot("a", 1, 10);
  report.Plot("b", 2, 20).faint = true;
  report.Plot("a", 3, 30);
  ASSERT_EQ(report.plot.series.size(), 2u);
  EXPECT_EQ(report.plot.series[0].x, (std::vector<double>{1, 3}));
  EXPECT_EQ(report.plot.series[1].y, (std::vector<double>{20}));
  EXPECT_TRUE(report.plot.series[1].faint);
}

}  // namespace
}  // namespace trireme
