// The program `least_squares` as its users meet it.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "process.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

Outcome RunLeastSquares(const Args& args) { return Process(LEAST_SQUARES_BINARY, args).Wait(); }

// Lines of the output that start with `name`, as words.
std::vector<Args> Rows(const std::string& out, const std::string& name) {
  std::vector<Args> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

void ExpectRefused(const Args& args, const std::string& part) {
  const Outcome outcome = RunLeastSquares(args);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("least_squares: ")) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << " lacks " << part;
}

TEST(LeastSquaresProgram, WithoutDescriptorsThePictureIsWhole) {
  const fs::path picture = fs::path(::testing::TempDir()) / "least_squares_no_descriptors.svg";
  fs::remove(picture);
  const Args args = {"--samples", "64", "--dimensions", "2", "--rounds", "5", "--picture", picture.string()};
  EXPECT_EQ(Process(LEAST_SQUARES_BINARY, args, {.no_descriptors = true}).Wait().code, 0);
  std::ostringstream svg;
  svg << std::ifstream(picture).rdbuf();
  EXPECT_TRUE(svg.str().starts_with("<")) << svg.str().substr(0, 100);
  EXPECT_TRUE(svg.str().ends_with("</svg>\n")) << svg.str().substr(svg.str().size() - 100);
}

TEST(LeastSquaresProgram, PrintsEqualBitsAndTrafficThatFollowsTheFormula) {
  const fs::path picture = fs::path(::testing::TempDir()) / "least_squares_test.svg";
  fs::remove(picture);
  const Outcome outcome = RunLeastSquares({"--samples", "501", "--dimensions", "3", "--rounds", "30",
                                           "--seed", "5", "--picture", picture.string()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::vector<Args> synchronous = Rows(outcome.out, "synchronous ");
  ASSERT_EQ(synchronous.size(), 4) << outcome.out;
  for (const Args& row : synchronous) EXPECT_EQ(row.back(), "yes") << outcome.out;
  for (const char* kind : {"local reduce ", "one by one "}) {
    const std::vector<Args> rows = Rows(outcome.out, kind);  // workers messages broadcast reduce formula ms
    ASSERT_EQ(rows.size(), 4) << outcome.out;
    for (const Args& row : rows) EXPECT_EQ(row.at(3), row.at(4)) << outcome.out;
  }
  EXPECT_EQ(Rows(outcome.out, "one by one ")[1].at(3), std::to_string(251 * 3 * 8));
  std::ostringstream svg;
  svg << std::ifstream(picture).rdbuf();
  for (const char* part : {"<svg", "serial", "synchronous, 8 workers", "asynchronous, 8 workers"})
    EXPECT_NE(svg.str().find(part), std::string::npos) << part;
}

TEST(LeastSquaresProgram, SameSeedSameResult) {
  const auto loss_and_distance = [](const char* seed) {
    const Outcome outcome = RunLeastSquares(
        {"--samples", "100", "--rounds", "10", "--rate", "0.1", "--workers", "2", "--seed", seed});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<Args> rows = Rows(outcome.out, "synchronous ");
    EXPECT_EQ(rows.size(), 2);
    return Args{rows.at(1).at(3), rows.at(1).at(4)};
  };
  EXPECT_EQ(loss_and_distance("3"), loss_and_distance("3"));
  EXPECT_NE(loss_and_distance("3"), loss_and_distance("4"));
}

TEST(LeastSquaresProgram, RefusesBadInput) {
  ExpectRefused({"--samples", "0"}, "--samples");
  ExpectRefused({"--samples", "many"}, "many");
  ExpectRefused({"--samples", "1.5"}, "--samples");
  ExpectRefused({"--samples", "-3"}, "--samples");
  ExpectRefused({"--dimensions", "0"}, "--dimensions");
  ExpectRefused({"--samples", "1000000", "--dimensions", "1000"}, "product");
  ExpectRefused({"--workers", "3"}, "1, 2, 4 or 8");
  ExpectRefused({"--workers", "16"}, "--workers");
  ExpectRefused({"--rounds", "0"}, "--rounds");
  ExpectRefused({"--rate", "0"}, "--rate");
  ExpectRefused({"--rate", "nan"}, "--rate");
  ExpectRefused({"--rate", "100", "--samples", "100"}, "diverges");
  ExpectRefused({"--seed", "-1"}, "--seed");
  ExpectRefused({"--seed", "1", "--seed", "2"}, "--seed");
  ExpectRefused({"--frobnicate"}, "--frobnicate");
  ExpectRefused({"extra"}, "extra");
  ExpectRefused({"--picture"}, "--picture");
}

TEST(LeastSquaresProgram, AFailureToWriteIsReported) {
  const Args small = {"--samples", "50", "--dimensions", "2", "--rounds", "2", "--workers", "1"};
  Args lost = small;
  lost.insert(lost.end(), {"--picture", "/no/such/folder/loss.svg"});
  const Outcome outcome = RunLeastSquares(lost);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("/no/such/folder"), std::string::npos) << outcome.err;
  if (!fs::exists("/dev/full")) return;
  const Outcome full = Process(LEAST_SQUARES_BINARY, small, {.out_file = "/dev/full"}).Wait();
  EXPECT_EQ(full.code, 2);
  EXPECT_NE(full.err.find("cannot write"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace trireme::testing
