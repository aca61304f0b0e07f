// What is found again of a replay server's file after the worst has happened to it.
#include "trireme/experience/replay_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCapacity = 4096, kHeader = 4096;
constexpr int kSamples = 64;

EnvSpec Env() {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {3};
  env.action = ActionSpace::Discrete(2);
  return env;
}
const std::size_t kRecordSize = ReplayBuffer::RecordSize(RowLayout(Env()), 1);

ReplayPart MakePart() { return {{.capacity = kCapacity, .n_step = 1}, Env(), /*envs=*/1}; }

class ReplayFile : public ::testing::Test {
 protected:
  fs::path Path() const { return folder_.path() / "memory"; }
  fs::path Transitions() const { return Path() / "transitions"; }

  // A server that has remembered so many trajectories of 64 samples, and was killed.
  void Remember(int trajectories) const {
    ReplayFolder folder(Path());
    ReplayPart part = MakePart();
    folder.Create("description", kCapacity, kRecordSize);
    for (int i = 1; i <= trajectories; ++i) {
      Trajectory t(RowLayout(3), 1, kSamples, 1);
      std::ranges::fill(t.obs, static_cast<float>(i));
      std::ranges::fill(t.extra, 1.0f);
      part.Insert(t);
      folder.WriteInserted(part);
      folder.WriteCounted({part.inserted(), 7});
    }
  }
  // The next one. All that is found can be drawn, and nothing else.
  ReplayFolder::Found Find() const {
    ReplayFolder folder(Path());
    EXPECT_EQ(folder.Description(), "description");
    ReplayPart part = MakePart();
    const ReplayFolder::Found found = folder.Restore(part, kCapacity, kRecordSize);
    EXPECT_EQ(part.inserted(), found.inserted);
    if (found.there == 0) return found;
    ReplayDraw draw(256, RowLayout(3), 1);
    RandomStream random(1, Purpose::kTest, 0, 0);
    part.Sample(random, 0.5, draw);
    for (std::size_t i = 0; i < draw.size(); ++i)
      EXPECT_EQ(draw.transitions.obs[3 * i], static_cast<float>(draw.numbers[i] / kSamples + 1));
    return found;
  }
  std::size_t RecordBytes() const { return (fs::file_size(Transitions()) - kHeader) / kCapacity; }
  static off_t BlocksOf(const fs::path& path) {
    struct stat status;
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_blocks * 512;
  }

  ScratchFolder folder_;
};

TEST_F(ReplayFile, IsFoundAgainWhole) {
  Remember(10);
  const ReplayFolder::Found found = Find();
  EXPECT_EQ(found.there, 10u * kSamples);
  EXPECT_EQ(found.lost, 0u);
  EXPECT_EQ(found.counted.inserted, 10u * kSamples);
  EXPECT_EQ(found.counted.drift, 7);
}

// The ring is not full yet, or it is and goes round.
TEST_F(ReplayFile, ATailOfZerosIsLostAndNoData) {
  for (const int trajectories : {10, 100}) {
    SCOPED_TRACE(trajectories);
    Remember(trajectories);
    std::string bytes = ReadFile(Transitions());
    // In the middle of a record.
    const std::size_t left = kHeader + 5 * kSamples * RecordBytes() + 20;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(left), bytes.end(), '\0');
    fs::remove(Transitions());
    WriteNewFile(Transitions(), bytes);
    const ReplayFolder::Found found = Find();
    EXPECT_EQ(found.inserted, static_cast<std::uint64_t>(trajectories) * kSamples)
        << "numbers are not given twice";
    EXPECT_EQ(found.there, 5u * kSamples);
    EXPECT_EQ(found.lost, std::min<std::size_t>(trajectories * kSamples, kCapacity) - 5 * kSamples);
  }
}

// Later nothing could be written there, if the disk is full by then.
TEST_F(ReplayFile, HolesAreGivenRoomAgain) {
  Remember(10);
  const auto whole = static_cast<off_t>(fs::file_size(Transitions()));
  const std::size_t used = kHeader + 10 * kSamples * RecordBytes();
  EXPECT_GE(BlocksOf(Transitions()), whole);
  const std::string bytes = ReadFile(Transitions());
  fs::remove(Transitions());
  WriteNewFile(Transitions(), bytes.substr(0, used));
  fs::resize_file(Transitions(), static_cast<std::uintmax_t>(whole));
  if (BlocksOf(Transitions()) >= whole) GTEST_SKIP() << "this file system has no holes";
  const ReplayFolder::Found found = Find();
  EXPECT_EQ(found.there, 10u * kSamples);
  EXPECT_EQ(found.lost, 0u);
  EXPECT_GE(BlocksOf(Transitions()), whole);
}

TEST_F(ReplayFile, WithoutRoomForAnotherMemoryNothingIsLost) {
  Remember(10);
  {
    ReplayFolder folder(Path());
    folder.SetEnded(true);
    EXPECT_THROW(folder.Create("another", std::size_t{1} << 50, kRecordSize), Error);
    EXPECT_TRUE(folder.ended());
  }
  EXPECT_EQ(Find().there, 10u * kSamples);
  const ScratchFolder fresh;
  ReplayFolder folder(fresh.path() / "memory");
  EXPECT_THROW(folder.Create("another", std::size_t{1} << 50, kRecordSize), Error);
  EXPECT_FALSE(fs::exists(fresh.path() / "memory/transitions")) << "it takes room from others";
}

TEST_F(ReplayFile, WhatAServerThatWasKilledWasWritingIsRemoved) {
  Remember(1);
  for (const char* name : {"description.tmp", "ended.tmp"}) WriteNewFile(Path() / name, "half");
  EXPECT_EQ(Find().there, 1u * kSamples);
  for (const fs::path& path : ListFolder(Path())) EXPECT_NE(path.extension(), ".tmp") << path;
}

// One place may be torn: then the other one counts, which is one insert or draw older.
TEST_F(ReplayFile, WhatWasCountedIsThereTwice) {
  Remember(10);
  const std::string bytes = ReadFile(Transitions());
  std::size_t older = 0, none = 0;
  for (const std::size_t place : {64, 128}) {
    for (const std::size_t at : {0, 8, 16, 24}) {
      std::string damaged = bytes;
      damaged[place + at] = static_cast<char>(damaged[place + at] ^ 1);
      fs::remove(Transitions());
      WriteNewFile(Transitions(), damaged);
      const std::uint64_t counted = Find().counted.inserted;
      older += counted == 9u * kSamples;
      none += counted != 9u * kSamples && counted != 10u * kSamples;
    }
  }
  EXPECT_EQ(older, 4u);
  EXPECT_EQ(none, 0u);
}

}  // namespace
}  // namespace trireme
