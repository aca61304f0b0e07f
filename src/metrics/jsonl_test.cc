#include "trireme/metrics/jsonl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

MetricRow Row(std::int64_t step, double loss) {
  MetricRow row(step, 0.5);
  row.Set("loss", loss);
  return row;
}

std::vector<std::int64_t> Steps(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  for (const MetricRow& row : ReadJsonl(path)) steps.push_back(row.step());
  return steps;
}

void AppendRaw(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(MetricRow, KeepsOrderAndReplaces) {
  MetricRow row(7, 1.5);
  row.Set("b", 1);
  row.Set("a", 2);
  row.Set("b", 3);
  ASSERT_EQ(row.values().size(), 2u);
  EXPECT_EQ(row.values()[0].first, "b");
  EXPECT_EQ(row.Get("b"), 3);
  EXPECT_EQ(row.Get("a"), 2);
  EXPECT_TRUE(std::isnan(row.Get("c")));
}

TEST(MetricRowDeathTest, RefusesTheNamesOfItsOwnFields) {
  MetricRow row;
  EXPECT_DEATH(row.Set("step", 1), "CHECK");
  EXPECT_DEATH(row.Set("wall_s", 1), "CHECK");
}

TEST(Jsonl, OneLineInOrder) {
  MetricRow row(2048, 0.25);
  row.Set("z", 0.1);
  row.Set("a", -3);
  EXPECT_EQ(FormatJsonlRow(row), "{\"step\":2048,\"wall_s\":0.25,\"z\":0.1,\"a\":-3.0}\n");
}

TEST(Jsonl, NotFiniteIsNull) {
  MetricRow row = Row(1, std::numeric_limits<double>::quiet_NaN());
  row.Set("up", std::numeric_limits<double>::infinity());
  row.Set("down", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(FormatJsonlRow(row), "{\"step\":1,\"wall_s\":0.5,\"loss\":null,\"up\":null,\"down\":null}\n");
}

TEST(Jsonl, AnyNameGivesValidJson) {
  MetricRow row(1, 0);
  row.Set("quote\" newline\n bad\xff", 1);
  const std::string line = FormatJsonlRow(row);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST(Jsonl, DoublesSurviveExactly) {
  TestFolder folder;
  const std::vector<double> values = {0.1, 1.0 / 3, 1e300, -5e-324, 123456789.123456789};
  {
    JsonlWriter writer(folder / "m.jsonl");
    for (const double value : values) writer.Append(Row(1, value));
  }
  const std::vector<MetricRow> rows = ReadJsonl(folder / "m.jsonl");
  ASSERT_EQ(rows.size(), values.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].Get("loss"), values[i]);
}

TEST(Jsonl, EveryRowIsInTheFileAtOnce) {
  TestFolder folder;
  JsonlWriter writer(folder / "m.jsonl");
  for (int i = 1; i <= 3; ++i) {
    writer.Append(Row(i, i));
    EXPECT_EQ(Steps(folder / "m.jsonl").size(), static_cast<std::size_t>(i));
    EXPECT_EQ(writer.Offset(), std::filesystem::file_size(folder / "m.jsonl"));
  }
}

TEST(Jsonl, ResumeCutsRowsAfterTheOffset) {
  TestFolder folder;
  std::uint64_t offset = 0;
  {
    JsonlWriter writer(folder / "m.jsonl");
    writer.Append(Row(1, 1));
    writer.Append(Row(2, 1));
    offset = writer.Offset();
    writer.Append(Row(3, 1));
  }
  AppendRaw(folder / "m.jsonl", "{\"step\":4,\"wal");
  JsonlWriter resumed(folder / "m.jsonl", offset);
  EXPECT_EQ(resumed.Offset(), offset);
  EXPECT_EQ(std::filesystem::file_size(folder / "m.jsonl"), offset);
  resumed.Append(Row(3, 2));
  EXPECT_EQ(Steps(folder / "m.jsonl"), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(ReadJsonl(folder / "m.jsonl")[2].Get("loss"), 2);
}

TEST(Jsonl, ResumeOfAShorterFileKeepsItsWholeLines) {
  TestFolder folder;
  JsonlWriter(folder / "m.jsonl").Append(Row(1, 1));
  AppendRaw(folder / "m.jsonl", "{\"step\":2,");
  JsonlWriter resumed(folder / "m.jsonl", 1'000'000);
  resumed.Append(Row(3, 1));
  EXPECT_EQ(Steps(folder / "m.jsonl"), (std::vector<std::int64_t>{1, 3}));
}

TEST(Jsonl, ResumeWithoutAFileStartsOne) {
  TestFolder folder;
  JsonlWriter resumed(folder / "m.jsonl", 99);
  EXPECT_EQ(resumed.Offset(), 0u);
  resumed.Append(Row(5, 1));
  EXPECT_EQ(Steps(folder / "m.jsonl"), std::vector<std::int64_t>{5});
}

TEST(Jsonl, FreshStartDropsAnOldFile) {
  TestFolder folder;
  JsonlWriter(folder / "m.jsonl").Append(Row(1, 1));
  JsonlWriter(folder / "m.jsonl").Append(Row(2, 1));
  EXPECT_EQ(Steps(folder / "m.jsonl"), std::vector<std::int64_t>{2});
}

TEST(Jsonl, FullDiskNamesThePath) {
  JsonlWriter writer("/dev/full");
  const std::string message = ErrorOf([&] { writer.Append(Row(1, 1)); });
  EXPECT_TRUE(Contains(message, "/dev/full"));
  EXPECT_TRUE(Contains(message, "No space left"));
  EXPECT_EQ(writer.Offset(), 0u);
}

TEST(Jsonl, DiskFullInTheMiddleOfARowLeavesWholeRows) {
  TestFolder folder;
  JsonlWriter writer(folder / "m.jsonl");
  writer.Append(Row(1, 1));
  const std::uint64_t offset = writer.Offset();
  {
    FileSizeLimit limit(offset + 5);
    EXPECT_TRUE(Contains(ErrorOf([&] { writer.Append(Row(2, 1)); }), "m.jsonl"));
  }
  EXPECT_EQ(std::filesystem::file_size(folder / "m.jsonl"), offset);
  EXPECT_EQ(writer.Offset(), offset);
  writer.Append(Row(3, 1));
  EXPECT_EQ(Steps(folder / "m.jsonl"), (std::vector<std::int64_t>{1, 3}));
}

TEST(Jsonl, UnwritablePathsNameThePath) {
  TestFolder folder;
  EXPECT_TRUE(Contains(ErrorOf([&] { JsonlWriter writer(folder / "no/such/m.jsonl"); }), "no/such/m.jsonl"));
  EXPECT_TRUE(Contains(ErrorOf([&] { JsonlWriter writer(folder.path()); }), folder.path().string()));
}

TEST(ReadJsonl, SkipsAPartialLastLine) {
  TestFolder folder;
  JsonlWriter(folder / "m.jsonl").Append(Row(1, 1));
  AppendRaw(folder / "m.jsonl", "{\"step\":2");
  EXPECT_EQ(Steps(folder / "m.jsonl"), std::vector<std::int64_t>{1});
}

TEST(ReadJsonl, NullBecomesNan) {
  TestFolder folder;
  AppendRaw(folder / "m.jsonl", "{\"step\":2,\"wall_s\":1,\"loss\":null}\n");
  EXPECT_TRUE(std::isnan(ReadJsonl(folder / "m.jsonl")[0].Get("loss")));
}

TEST(ReadJsonl, MalformedLinesAreNamed) {
  for (const char* line :
       {"", "x", "[1]", "{}", "{\"step\":1}", "{\"step\":1.5,\"wall_s\":0}", "{\"step\":\"1\",\"wall_s\":0}",
        "{\"step\":1,\"wall_s\":\"0\"}", "{\"step\":1,\"wall_s\":0,\"a\":[]}", "{\"step\":1,\"wall_s\":0"}) {
    TestFolder folder;
    JsonlWriter(folder / "m.jsonl").Append(Row(1, 1));
    AppendRaw(folder / "m.jsonl", std::string(line) + "\n");
    EXPECT_TRUE(Contains(ErrorOf([&] { ReadJsonl(folder / "m.jsonl"); }), "m.jsonl:2: not a row")) << line;
  }
}

}  // namespace
}  // namespace trireme
