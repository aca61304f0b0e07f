#include "trireme/base/file.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest()
      : folder(
            fs::path(testing::TempDir()) /
            (std::string("trireme_file_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~FileTest() override { fs::remove_all(folder); }

  std::size_t Entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  const fs::path folder;
};

TEST_F(FileTest, WritesAndReadsBackAnyBytes) {
  std::string bytes = "line\r\nzero:";
  bytes.push_back('\0');
  bytes += "\xff end";
  WriteFileAtomically(folder / "a", bytes);
  EXPECT_EQ(ReadFile(folder / "a"), bytes);
  WriteFileAtomically(folder / "a", "");
  EXPECT_EQ(ReadFile(folder / "a"), "");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(FileTest, LargeContent) {
  std::string bytes(3'000'017, 'x');
  bytes.back() = 'y';
  WriteFileAtomically(folder / "a", bytes);
  EXPECT_EQ(Sha256Hex(ReadFile(folder / "a")), Sha256Hex(bytes));
}

TEST_F(FileTest, ANewFileIsNoneThatIsThere) {
  WriteNewFile(folder / "a", "new");
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_THROW(WriteNewFile(folder / "a", "other"), Error);
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_THROW(WriteNewFile(folder / "missing" / "a", "new"), Error);
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(FileTest, FullDiskLeavesTheOldContentAndNoTemporary) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  WriteFileAtomically(folder / "a", "old");
  // Writing through this link fails the way a full disk does.
  fs::create_symlink("/dev/full", folder / "a.tmp");
  try {
    WriteFileAtomically(folder / "a", "new");
    FAIL() << "a full disk must be reported";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ReadFile(folder / "a"), "old");
  EXPECT_EQ(Entries(), 1u);
  EXPECT_TRUE(fs::exists("/dev/full"));
}

TEST_F(FileTest, MissingFolderIsReportedAndNotCreated) {
  EXPECT_THROW(WriteFileAtomically(folder / "missing" / "a", "x"), Error);
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(FileTest, FolderInTheWayIsReportedAndLeavesNoTemporary) {
  fs::create_directory(folder / "a");
  EXPECT_THROW(WriteFileAtomically(folder / "a", "x"), Error);
  EXPECT_TRUE(fs::is_directory(folder / "a"));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(FileTest, LeftOverTemporaryOfACrashIsReplaced) {
  WriteFileAtomically(folder / "a.tmp", "half of something much longer");
  WriteFileAtomically(folder / "a", "new");
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(FileTest, ReadingWhatCannotBeReadNamesThePath) {
  const auto message = [](const fs::path& path) -> std::string {
    try {
      ReadFile(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(folder), fmt::format("cannot read {}: it is a folder", folder.string()));
  const fs::path missing = folder / "missing";
  EXPECT_EQ(message(missing), fmt::format("cannot read {}: No such file or directory", missing.string()));
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace trireme
