#include "trireme/plan/constants.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

class ConstantsTest : public ::testing::Test {
 protected:
  ConstantsTest() {
    // One folder per test: they run in processes of their own, at the same time.
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  ~ConstantsTest() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return (folder_ / "constants.toml").string(); }
  static void Fill(PlanConstants& c) {
    c.env = "CartPole-v1";
    c.algo = "ppo";
    c.floats = 9155;
    c.steps_per_round = 204.8;
    c.round_fixed_s = 1.25e-5;
    c.round_split_s = 3.3e-3;
    c.round_times = {900, 1000, 1100};
    c.network = {.latency_s = 5e-5, .bytes_per_s = 1.2e9};
  }
  std::string MessageOf(const std::string& env, const std::string& algo) {
    ConstantTable table;
    try {
      table.ReadFrom(Path(), env, algo);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ConstantsTest, AFileGivesThemBackExactly) {
  ConstantTable written, read;
  Fill(written.values);
  written.WriteTo(Path());
  read.ReadFrom(Path(), "CartPole-v1", "ppo");
  EXPECT_EQ(read.values.floats, 9155);
  EXPECT_EQ(read.values.steps_per_round, 204.8);
  EXPECT_EQ(read.values.round_fixed_s, 1.25e-5);
  EXPECT_EQ(read.values.round_times, written.values.round_times);
  EXPECT_EQ(read.values.network.bytes_per_s, 1.2e9);
  for (const ConstantTable::Row& row : read.Rows()) EXPECT_EQ(row.origin, Path()) << row.name;
}

TEST_F(ConstantsTest, AFileOfSomethingElseIsRefused) {
  ConstantTable written;
  Fill(written.values);
  written.WriteTo(Path());
  EXPECT_EQ(MessageOf("CartPole-v1", "ppo"), "");
  EXPECT_NE(MessageOf("Acrobot-v1", "ppo").find("of ppo on CartPole-v1, not of ppo on Acrobot-v1"),
            std::string::npos);
  EXPECT_NE(MessageOf("CartPole-v1", "dqn"), "");
}

TEST_F(ConstantsTest, AnIncompleteFileIsRefused) {
  const auto with = [&](const char* more) {
    WriteFileAtomically(Path(), fmt::format("env = \"CartPole-v1\"\nalgo = \"ppo\"\n{}", more));
    return MessageOf("CartPole-v1", "ppo");
  };
  EXPECT_NE(with("").find("floats"), std::string::npos);
  EXPECT_NE(with("floats = 10\nsteps_per_round = 1\nround_split_s = 1.0\nround_times = [0, 0]\n")
                .find("round_times"),
            std::string::npos);
  EXPECT_NE(with("flaots = 10\n").find("floats"), std::string::npos);
  EXPECT_NE(with("network_bytes_per_s = 0\n").find("above 0"), std::string::npos);
  EXPECT_EQ(with("floats = 10\nsteps_per_round = 1\nround_split_s = 1.0\n"), "");
}

TEST_F(ConstantsTest, TheLastOriginCounts) {
  ConstantTable table;
  Fill(table.values);
  table.SetOrigin("", "measured");
  table.SetOrigin("network_latency", "--latency");
  for (const ConstantTable::Row& row : table.Rows()) {
    EXPECT_EQ(row.origin, row.name == "network_latency_s" ? "--latency" : "measured");
  }
  const std::string text = table.ToText();
  EXPECT_NE(text.find("50.0 us  --latency"), std::string::npos) << text;
  EXPECT_NE(text.find("900 .. 1100"), std::string::npos) << text;
}

}  // namespace
}  // namespace trireme
