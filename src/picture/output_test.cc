#include "trireme/picture/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

Picture Grey(int level) {
  Picture picture;
  const auto value = static_cast<std::uint8_t>(level);
  picture.Fill(20, 10, {value, value, value});
  return picture;
}

class OutputTest : public testing::Test {
 protected:
  fs::path Path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::size_t Entries() const { return ListFolder(scratch_.path()).size(); }
  static std::string Refusal(const fs::path& path) {
    try {
      CheckPictureOutput(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static void ExpectRefused(const fs::path& path, const std::string& part) {
    EXPECT_NE(Refusal(path).find(part), std::string::npos) << Refusal(path);
    EXPECT_THROW(MakePictureOutput(path, 30), Error);
  }
  static void Keep(const fs::path& path, int count) {
    const auto output = MakePictureOutput(path, 30);
    for (int i = 0; i < count; ++i) output->Add(Grey(i));
    output->Finish();
  }

 private:
  ScratchFolder scratch_;
};

TEST_F(OutputTest, KeepsFilmsAndFrames) {
  Keep(Path("a.gif"), 3);
  EXPECT_TRUE(ReadFile(Path("a.gif")).starts_with("GIF89a"));
  Keep(Path("B.GIF"), 1);
  Keep(Path("frames/"), 12);
  EXPECT_EQ(ListFolder(Path("frames")).size(), 12u);
  EXPECT_TRUE(ReadFile(Path("frames/000011.png")).starts_with("\x89PNG"));
  EXPECT_EQ(fs::status(Path("frames")).permissions() & fs::perms::others_read, fs::perms::others_read);
  fs::create_directory(Path("empty"));
  Keep(Path("empty/"), 2);
  EXPECT_EQ(ListFolder(Path("empty")).size(), 2u);
  EXPECT_EQ(Entries(), 4u);
}

TEST_F(OutputTest, WhatIsGivenUpLeavesNothing) {
  for (const char* name : {"a.gif", "frames/"}) {
    const auto output = MakePictureOutput(Path(name), 30);
    output->Add(Grey(1));
  }
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(OutputTest, RefusesOtherNames) {
  for (const char* name : {"a", "a.avi", "a.png", ".gif", "a.gif.txt", "a."}) {
    ExpectRefused(Path(name), "a film ends in .gif or .mp4, a folder for PNG files in a slash");
  }
  EXPECT_THROW(CheckPictureOutput(""), Error);
}

TEST_F(OutputTest, ReplacesNothing) {
  WriteFileAtomically(Path("a.gif"), "old");
  fs::create_directory(Path("b.gif"));
  fs::create_symlink("/dev/full", Path("c.gif"));
  for (const char* name : {"a.gif", "b.gif", "c.gif"}) ExpectRefused(Path(name), "is there already");
  fs::create_directory(Path("full"));
  WriteFileAtomically(Path("full/file"), "old");
  ExpectRefused(Path("full/"), "is not empty");
  ExpectRefused(Path("a.gif/"), "is there already");
  EXPECT_EQ(ReadFile(Path("a.gif")), "old");
  EXPECT_EQ(ReadFile(Path("full/file")), "old");
}

// Somebody else was faster.
TEST_F(OutputTest, DoesNotReplaceWhatCameMeanwhile) {
  const auto film = MakePictureOutput(Path("a.gif"), 30), frames = MakePictureOutput(Path("frames/"), 30);
  film->Add(Grey(1));
  frames->Add(Grey(1));
  WriteFileAtomically(Path("a.gif"), "other");
  fs::create_directory(Path("frames"));
  WriteFileAtomically(Path("frames/file"), "other");
  EXPECT_THROW(film->Finish(), Error);
  EXPECT_THROW(frames->Finish(), Error);
  EXPECT_EQ(ReadFile(Path("a.gif")), "other");
  EXPECT_EQ(ListFolder(Path("frames")).size(), 1u);
}

TEST_F(OutputTest, RefusesMissingFolders) {
  ExpectRefused(Path("missing/a.gif"), "there is no folder");
  ExpectRefused(Path("missing/frames/"), "there is no folder");
}

TEST_F(OutputTest, RefusesClosedFolders) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::create_directory(Path("closed"));
  fs::permissions(Path("closed"), fs::perms::owner_read | fs::perms::owner_exec);
  ExpectRefused(Path("closed/a.gif"), "Permission denied");
  ExpectRefused(Path("closed/frames/"), "Permission denied");
  fs::permissions(Path("closed"), fs::perms::owner_all);
}

TEST_F(OutputTest, AFullDiskIsReportedAndLeavesNothing) {
  const auto film = MakePictureOutput(Path("a.gif"), 30);
  film->Add(Grey(1));
  fs::create_symlink("/dev/full", Path("a.gif.tmp"));  // where it is written before it gets its name
  try {
    film->Finish();
    FAIL() << "a full disk must be reported";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(OutputTest, WithoutItsLibraryMp4SaysHowToGetIt) {
  setenv("TRIREME_PLUGINS", Path("nothing").c_str(), 1);
  // The library stands beside the program; that of this test stands elsewhere.
  const std::string refusal = Refusal(Path("a.mp4"));
  unsetenv("TRIREME_PLUGINS");
  EXPECT_NE(refusal.find("this build has no MP4 (ffmpeg)"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("`make all` installs what it needs"), std::string::npos) << refusal;
  EXPECT_EQ(Entries(), 0u);
}

}  // namespace
}  // namespace trireme
