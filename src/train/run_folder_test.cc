#include "trireme/train/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    root_ = fs::path(testing::TempDir()) /
            fmt::format("trireme_run_folder_{}_{}",
                        testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::current_path(root_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(root_);
  }

  static std::string Refusal(const fs::path& path) {
    try {
      RunFolder::Create(path, "run", "new = 1\n");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static std::string RefusalToResume(const fs::path& path) {
    try {
      RunFolder::Resume(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static bool Mentions(const std::string& message, const std::string& part) {
    return message.find(part) != std::string::npos;
  }

  fs::path before_, root_;
};

TEST_F(RunFolderTest, CreateMakesTheFolderAndSavesTheSettings) {
  const RunFolder folder = RunFolder::Create(root_ / "deep" / "down", "ignored", "seed = 1\n");
  EXPECT_EQ(folder.path(), root_ / "deep" / "down");
  EXPECT_EQ(folder.ReadConfig(), "seed = 1\n");
  EXPECT_TRUE(fs::exists(root_ / "deep" / "down" / "config.toml"));
  EXPECT_EQ(folder.metrics(), root_ / "deep" / "down" / "metrics.jsonl");
  EXPECT_EQ(folder.result(), root_ / "deep" / "down" / "result.json");

  const RunFolder again = RunFolder::Open(folder.path());
  EXPECT_EQ(again.ReadConfig(), "seed = 1\n");
  again.WriteConfig("seed = 2\n");
  EXPECT_EQ(folder.ReadConfig(), "seed = 2\n");
}

TEST_F(RunFolderTest, AnEmptyFolderMayBeUsed) {
  fs::create_directories(root_ / "empty");
  EXPECT_EQ(Refusal(root_ / "empty"), "");
}

TEST_F(RunFolderTest, WithoutAPathFreshNamesAreChosen) {
  EXPECT_EQ(RunFolder::Create("", "A-seed1", "").path(), fs::path("runs/A-seed1-001"));
  EXPECT_EQ(RunFolder::Create("", "A-seed1", "").path(), fs::path("runs/A-seed1-002"));
  EXPECT_EQ(RunFolder::Create("", "B-seed1", "").path(), fs::path("runs/B-seed1-001"));
  EXPECT_TRUE(fs::exists(root_ / "runs" / "A-seed1-002" / "config.toml"));
}

TEST_F(RunFolderTest, RefusesAFile) {
  std::ofstream("file") << "x";
  EXPECT_TRUE(Mentions(Refusal(root_ / "file"), "is a file"));
  EXPECT_TRUE(Mentions(Refusal(root_ / "file" / "below"), "cannot make the folder"));
}

TEST_F(RunFolderTest, RefusesAnotherRunAndLeavesItAlone) {
  RunFolder::Create(root_ / "other", "", "old = 1\n");
  const std::string message = Refusal(root_ / "other");
  EXPECT_TRUE(Mentions(message, "holds another run")) << message;
  EXPECT_TRUE(Mentions(message, "--resume " + (root_ / "other").string())) << message;
  EXPECT_EQ(RunFolder::Open(root_ / "other").ReadConfig(), "old = 1\n");
}

TEST_F(RunFolderTest, RefusesAFolderWithOtherFiles) {
  fs::create_directories("mine");
  std::ofstream("mine/thesis.txt") << "x";
  EXPECT_TRUE(Mentions(Refusal(root_ / "mine"), "not empty"));
  EXPECT_FALSE(fs::exists("mine/config.toml"));
}

TEST_F(RunFolderTest, WhatAKilledProcessLeftIsNoObstacle) {
  fs::create_directories("half");
  std::ofstream("half/config.toml.tmp") << "x";
  EXPECT_EQ(Refusal(root_ / "half"), "");
  EXPECT_EQ(RunFolder::Open(root_ / "half").ReadConfig(), "new = 1\n");
}

TEST_F(RunFolderTest, IsClaimedByOneAtATime) {
  const fs::path path = root_ / "run";
  {
    const RunFolder folder = RunFolder::Create(path, "", "old = 1\n");
    EXPECT_TRUE(Mentions(Refusal(path), "another process is training there"));
    EXPECT_TRUE(Mentions(Refusal(path), "choose another folder"));
    EXPECT_TRUE(Mentions(RefusalToResume(path), "another process is training in " + path.string()));
    EXPECT_EQ(RunFolder::Open(path).ReadConfig(), "old = 1\n") << "reading needs no claim";
    EXPECT_EQ(Refusal(root_ / "other"), "");
  }
  {
    const RunFolder again = RunFolder::Resume(path);
    EXPECT_TRUE(Mentions(RefusalToResume(path), "another process"));
  }
  EXPECT_EQ(RefusalToResume(path), "");
}

TEST_F(RunFolderTest, OnlyWhoCreatedARunTakesItBack) {
  const fs::path path = root_ / "run";
  RunFolder::Create(path, "", "");
  RunFolder::Open(path).RemoveIfUnused();
  RunFolder::Resume(path).RemoveIfUnused();
  EXPECT_TRUE(fs::exists(path / "config.toml"));
  fs::remove_all(path);

  const RunFolder used = RunFolder::Create(path, "", "");
  std::ofstream(path / "metrics.jsonl") << "x";
  used.RemoveIfUnused();
  EXPECT_TRUE(fs::exists(path / "config.toml"));
  fs::remove(path / "metrics.jsonl");
  used.RemoveIfUnused();
  EXPECT_FALSE(fs::exists(path));
}

// The folder that was locked is not the one of that name any more.
TEST_F(RunFolderTest, AClaimIsOnTheFolderOfThatName) {
  const fs::path path = root_ / "run";
  const RunFolder first = RunFolder::Create(path, "", "");
  fs::remove_all(path);
  EXPECT_FALSE(FolderClaim::Try(path).held());
  EXPECT_EQ(Refusal(path), "");
}

TEST_F(RunFolderTest, OpenRefusesWhatIsNoRun) {
  std::ofstream("file") << "x";
  fs::create_directories("empty");
  EXPECT_THROW(RunFolder::Open(root_ / "missing"), Error);
  EXPECT_TRUE(Mentions(RefusalToResume(root_ / "missing"), "no folder"));
  EXPECT_TRUE(Mentions(RefusalToResume(root_ / "file"), "no folder"));
  EXPECT_TRUE(Mentions(RefusalToResume(root_ / "empty"), "config.toml is missing"));
}

}  // namespace
}  // namespace trireme
