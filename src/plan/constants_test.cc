#include "trireme/plan/constants.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/plan/units.h"

namespace trireme {
namespace {

class ConstantsTest : public ::testing::Test {
 protected:
  std::string Path() const { return (folder_.path() / "constants.toml").string(); }
  void Write() const {
    ConstantTable table;
    PlanConstants& c = table.values;
    c.env = "CartPole-v1";
    c.algo = "ppo";
    c.floats = 9155;
    c.steps_per_round = 204.8;
    c.round_fixed_s = 1.25e-5;
    c.round_split_s = 3.3e-3;
    c.round_times = {900, 1000, 1100};
    c.network = {.latency_s = 5e-5, .bytes_per_s = 1.2e9};
    table.WriteTo(Path());
  }
  std::string MessageOf(const std::string& env, const std::string& algo) const {
    ConstantTable table;
    try {
      table.ReadFrom(Path(), env, algo);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(ConstantsTest, AFileGivesThemBackExactlyAndTheLastOriginCounts) {
  Write();
  ConstantTable read;
  read.ReadFrom(Path(), "CartPole-v1", "ppo");
  EXPECT_EQ(read.values.floats, 9155);
  EXPECT_EQ(read.values.steps_per_round, 204.8);
  EXPECT_EQ(read.values.round_fixed_s, 1.25e-5);
  EXPECT_EQ(read.values.round_times, (std::vector<int>{900, 1000, 1100}));
  EXPECT_EQ(read.values.network.bytes_per_s, 1.2e9);
  read.SetOrigin("network_latency", "--latency");
  for (const ConstantTable::Row& row : read.Rows()) {
    EXPECT_EQ(row.origin, row.name == "network_latency_s" ? "--latency" : Path());
  }
  const std::string text = read.ToText();
  EXPECT_NE(text.find("50.0 us  --latency"), std::string::npos) << text;
  EXPECT_NE(text.find("900 .. 1100"), std::string::npos) << text;
}

TEST_F(ConstantsTest, AFileOfSomethingElseIsRefused) {
  Write();
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

TEST(UnitsTest, ReadsAndPrintsQuantities) {
  EXPECT_DOUBLE_EQ(ParseSeconds("50us", "--latency"), 50e-6);
  EXPECT_DOUBLE_EQ(ParseSeconds(" 1.5 ms ", "--latency"), 1.5e-3);
  EXPECT_DOUBLE_EQ(ParseSeconds("1e-5s", "--latency"), 1e-5);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("1.2GB/s", "--bandwidth"), 1.2e9);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("10Gbit/s", "--bandwidth"), 1.25e9);
  for (const char* text : {"", "us", "fast", "-1us", "0", "nan", "1 hour", "5GB/s", "30"}) {
    EXPECT_THROW(ParseSeconds(text, "--latency"), Error) << text;
  }
  for (const char* text : {"", "GB/s", "0GB/s", "-3MB/s", "inf", "50us", "1GB", "1.2"}) {
    EXPECT_THROW(ParseBytesPerSecond(text, "--bandwidth"), Error) << text;
  }
  EXPECT_EQ(FormatSeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.00099999), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0), "0.00 ns");
  EXPECT_EQ(FormatSeconds(250), "250 s");
  EXPECT_EQ(FormatBytesPerSecond(1.2e9), "1.20 GB/s");
}

}  // namespace
}  // namespace trireme
