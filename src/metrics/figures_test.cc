#include "trireme/metrics/figures.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(CommandReport, IsTextForPeopleAndJsonForPrograms) {
  CommandReport report{.heading = "what was done"};
  report.facts = {{"seed", 1}};
  report.sections = {{"a table",
                      "rows",
                      {{{"way", "way", "async"},
                        {"hosts", "hosts", 12},
                        Decimal("idle", "idle %", 0.125, 1, 100),
                        {"hidden", "", true}},
                       {{"way", "way", "ssp", "SSP"},
                        {"hosts", "hosts", 1, "*1"},
                        Decimal("idle", "idle %", kUnknown, 1),
                        {"hidden", "", false}}}},
                     {"only text", "", {}},
                     {"", "none", {}},
                     {"", "rows", {{{"way", "", "shared"}}}}};
  report.notes = {"a note"};
  EXPECT_EQ(report.ToText(),
            "what was done\n"
            "\na table\n"
            "way    hosts  idle %\n"
            "async     12    12.5\n"
            "SSP       *1       -\n"
            "\nonly text\n"
            "a note\n");
  EXPECT_EQ(
      report.ToJson(),
      R"({"seed":1,"rows":[{"way":"async","hosts":12,"idle":0.125,"hidden":true},)"
      R"({"way":"ssp","hosts":1,"idle":null,"hidden":false},{"way":"shared"}],"none":[],"notes":["a note"]})");
}

TEST(CommandReport, PlotAddsToTheSeriesOfAName) {
  CommandReport report;
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
