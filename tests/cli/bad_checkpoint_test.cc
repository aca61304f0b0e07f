// Checkpoints that are damaged, of another version or of another network, and disks that fill up: refused or
// reported in one line, with what is good left good.

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class BadCheckpointTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    result_ = FinishedRun("run", {"--set", "checkpoint_every_s=0"});
    files_ = Checkpoints(Path("run"));
    ASSERT_EQ(files_.size(), 2u);
  }
  // Neither training nor evaluation takes the newest checkpoint, and nothing is touched.
  void ExpectBothRefuse(const std::vector<std::string>& parts, const Args& train_more = {}) const {
    const auto before = Snapshot(folder_);
    ExpectRefused(RunTrireme(Args{"train", "--resume", Path("run"), "--json"} + train_more), parts);
    if (train_more.empty()) ExpectRefused(RunTrireme({"eval", Path("run")}), parts);
    EXPECT_EQ(Snapshot(folder_), before);
  }

  Json result_;
  std::vector<fs::path> files_;  // newest first
};

TEST_F(BadCheckpointTest, TruncatedAtAnyLengthNamesThePreviousGoodOne) {
  const std::string good = ReadText(files_[0]);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{25}, std::size_t{60}, good.size() / 2, good.size() - 1}) {
    SCOPED_TRACE(length);
    WriteText(files_[0], good.substr(0, length));
    ExpectBothRefuse({files_[0].string(), "previous good one is " + files_[1].string()});
  }
  WriteText(files_[0], good + "x");
  ExpectBothRefuse({files_[0].string(), "previous good one is " + files_[1].string()});
  fs::remove(files_[0]);
  const Json resumed = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--json"}));
  EXPECT_EQ(resumed["params_sha256"], result_["params_sha256"]);
  EXPECT_EQ(TimelessRows(Path("run")).size(), 10u);
}

TEST_F(BadCheckpointTest, AnyFlippedBitIsNoticed) {
  const std::string good = ReadText(files_[0]);
  for (int i = 0; i < 24; ++i) {
    // Half of them in the header, whose first 140 bytes have a meaning each.
    const std::size_t at = i % 2 == 0 ? i * 140 / 24 : i * good.size() / 24;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << i % 8));
    SCOPED_TRACE(at);
    WriteText(files_[0], bad);
    ExpectRefused(RunTrireme({"eval", Path("run")}), {files_[0].string(), files_[1].string()});
  }
  ExpectBothRefuse({files_[0].string(), "previous good one is " + files_[1].string()});
}

TEST_F(BadCheckpointTest, WithoutAGoodOneItSaysSo) {
  for (const fs::path& file : files_) WriteText(file, ReadText(file).substr(0, 1000));
  ExpectBothRefuse({files_[0].string(), "no earlier good one"});
}

TEST_F(BadCheckpointTest, OtherVersion) {
  std::string text = ReadText(files_[0]);
  text.replace(text.find("version 1\n"), 10, "version 2\n");
  WriteText(files_[0], text);
  ExpectBothRefuse({files_[0].string(), "version 2", "reads version 1", files_[1].string()});
}

TEST_F(BadCheckpointTest, OtherNetworkOrRun) {
  const std::string run = Path("run");
  ExpectBothRefuse({run, "network", "4-64-64-2 tanh", "4-32-2 tanh"}, {"--set", "hidden=[32]"});
  ExpectBothRefuse({run, "network", "relu"}, {"--set", "activation=relu"});  // as many parameters
  ExpectBothRefuse({run, "seed 1, not 2"}, {"--seed", "2"});
  ExpectBothRefuse({run, "shards 8, not 4"}, {"--set", "shards=4"});
  ExpectBothRefuse({run, "does not fit"}, {"--set", "envs=32"});
  ExpectBothRefuse({run, "optimizer", "'adam'", "'sgd'"}, {"--set", "optimizer=sgd"});
  // The refusals left the run as it was.
  EXPECT_EQ(ResultOf(RunTrireme({"train", "--resume", run, "--json"})), result_);

  std::string config = ReadText(Path("run/config.toml"));
  config.replace(config.find("hidden = [64, 64]"), 17, "hidden = [64, 32]");
  WriteText(Path("run/config.toml"), config);
  ExpectBothRefuse({run, "network", "64-64", "64-32"});
}

// As much as a few iterations of metrics, but less than a checkpoint.
constexpr rlim_t kLargestFile = 60'000;

class FullDiskTest : public CliTest {
 protected:
  // Resumes on the full disk, which fails in one line and loses nothing, then with room.
  void ExpectRecovery(const std::string& run, const Json& whole, const Outcome& failed,
                      const std::string& reason) const {
    ExpectRefused(failed, {"cannot write", run, reason});
    EXPECT_EQ(ResultOf(RunTrireme({"train", "--resume", run, "--json"}))["params_sha256"],
              whole["params_sha256"]);
    EXPECT_EQ(TimelessRows(run), TimelessRows(Path("whole")));
  }
};

TEST_F(FullDiskTest, LimitedFileSizeDuringTheFirstCheckpoint) {
  const Json whole = FinishedRun("whole");
  ASSERT_GT(fs::file_size(Checkpoints(Path("whole")).at(0)), kLargestFile);
  const Outcome failed =
      RunTrireme(SmallRun("run") + Args{"--set", "checkpoint_every_s=0"}, {.largest_file = kLargestFile});
  EXPECT_FALSE(fs::exists(Path("run/checkpoint-512.trireme.tmp")));
  ExpectRecovery(Path("run"), whole, failed, "File too large");
}

TEST_F(FullDiskTest, LimitedFileSizeDuringALaterCheckpointKeepsTheEarlierOne) {
  const Json whole = FinishedRun("whole");
  FinishedRun("run", {"--target", "1"});  // ends after 2048 steps
  const std::string before = ReadText(Checkpoints(Path("run")).at(0));
  const Outcome failed = RunTrireme({"train", "--resume", Path("run"), "--target", "1e6", "--json"},
                                    {.largest_file = kLargestFile});
  ASSERT_EQ(Checkpoints(Path("run")).at(0).filename(), "checkpoint-2048.trireme");
  EXPECT_EQ(ReadText(Checkpoints(Path("run")).at(0)), before);
  ExpectRecovery(Path("run"), whole, failed, "File too large");
}

TEST_F(FullDiskTest, SmallFileSystem) {
  const Json whole = FinishedRun("whole");
  const SmallDisk disk(Path("disk"));
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs more rights than this user has";
  // A file that leaves room for one checkpoint but not for three.
  const auto checkpoint = fs::file_size(Checkpoints(Path("whole")).at(0));
  WriteText(Path("disk/filler"), std::string(SmallDisk::kBytes - 2 * checkpoint - checkpoint / 2, 'x'));
  const Outcome failed = RunTrireme(SmallRun("disk/run") + Args{"--set", "checkpoint_every_s=0"});
  EXPECT_FALSE(Checkpoints(Path("disk/run")).empty());
  fs::remove(Path("disk/filler"));
  ExpectRecovery(Path("disk/run"), whole, failed, "No space left on device");
}

}  // namespace
}  // namespace trireme::testing
