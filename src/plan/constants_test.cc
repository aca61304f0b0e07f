#include "trireme/plan/constants.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

class ConstantsTest : public ::testing::Test {
 protected:
  std::string Path() const { return (folder_.path() / "constants.toml").string(); }
  void Write() const {
    PlanConstants c;
    c.env = "CartPole-v1";
    c.algo = "ppo";
    c.floats = 9155;
    c.steps_per_round = 204.8;
    c.round_fixed_s = 1.25e-5;
    c.round_split_s = 3.3e-3;
    c.round_times = {900, 1000, 1100};
    c.network = {.latency_s = 5e-5, .bytes_per_s = 1.2e9};
    c.WriteTo(Path());
  }
  std::string MessageOf(const std::string& env, const std::string& algo) const {
    PlanConstants constants;
    try {
      constants.ReadFrom(Path(), env, algo);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(ConstantsTest, AFileGivesThemBackExactlyAndTheLastOriginCounts) {
  Write();
  PlanConstants read;
  read.ReadFrom(Path(), "CartPole-v1", "ppo");
  EXPECT_EQ(read.floats, 9155);
  EXPECT_EQ(read.steps_per_round, 204.8);
  EXPECT_EQ(read.round_fixed_s, 1.25e-5);
  EXPECT_EQ(read.round_times, (std::vector<int>{900, 1000, 1100}));
  EXPECT_EQ(read.network.bytes_per_s, 1.2e9);
  read.origins.emplace_back("network_latency", "--latency");
  std::map<std::string, std::string> texts;
  for (const Row& row : read.Rows()) {
    texts[row[0].value] = row[1].text;
    EXPECT_EQ(row[2].value, row[0].value == "network_latency_s" ? "--latency" : Path());
  }
  EXPECT_EQ(texts["network_latency_s"], "50.0 us");
  EXPECT_EQ(texts["network_bytes_per_s"], "1.2e+09");
  EXPECT_EQ(texts["round_times"], "900 .. 1100");
}

TEST_F(ConstantsTest, AFileOfSomethingElseIsRefused) {
  Write();
  EXPECT_EQ(MessageOf("CartPole-v1", "ppo"), "");
  EXPECT_NE(MessageOf("Acrobot-v1", "ppo").find("of ppo on CartPole-v1, not of ppo on Acrobot-v1"),
            std::string::npos);
  EXPECT_NE(MessageOf("CartPole-v1", "dqn"), "");
  PlanConstants constants;
  EXPECT_THROW(constants.ReadFrom(Path(), "CartPole-v1", "ppo", "compress=int8"), Error);
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

}  // namespace
}  // namespace trireme
