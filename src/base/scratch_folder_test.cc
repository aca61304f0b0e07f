#include "trireme/base/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class ScratchFolderTest : public testing::Test {
 protected:
  ScratchFolderTest() {
    root_ = (fs::path(testing::TempDir()) / "scratch_folder_test-XXXXXX").string();
    if (::mkdtemp(root_.data()) == nullptr) std::abort();
    if (const char* set = std::getenv("TMPDIR")) before_ = set;
    ::setenv("TMPDIR", root_.c_str(), 1);
  }
  ~ScratchFolderTest() override {
    before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR");
    fs::remove_all(root_);
  }
  // Of a process that was killed while it had one.
  static void LeaveOne() {
    const pid_t child = ::fork();
    if (child == 0) {
      const ScratchFolder folder;
      std::ofstream(folder.path() / "file") << "x";
      ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }

  std::string root_;
  std::optional<std::string> before_;
};

TEST_F(ScratchFolderTest, IsGoneAtTheEnd) {
  fs::path path;
  {
    const ScratchFolder folder;
    path = folder.path();
    EXPECT_EQ(path.parent_path(), root_);
    std::ofstream(path / "file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(ScratchFolderTest, OnlyThoseOfTheDeadAreRemoved) {
  const ScratchFolder alive;
  fs::create_directory(root_ + "/trireme-other");
  std::ofstream(root_ + "/trireme-scratch-file") << "x";
  LeaveOne();
  ASSERT_EQ(ListFolder(root_).size(), 4u);
  const ScratchFolder next;
  EXPECT_EQ(ListFolder(root_).size(), 4u);
  EXPECT_TRUE(fs::exists(alive.path()));
  EXPECT_TRUE(fs::exists(next.path()));
  EXPECT_TRUE(fs::exists(root_ + "/trireme-other"));
}

// Each takes those of the others for abandoned unless they are claimed in time.
TEST_F(ScratchFolderTest, ManyAtOnceDoNotTakeEachOthers) {
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    int code = 0;
    for (int k = 0; k < 100 && code == 0; ++k) {
      const ScratchFolder folder;
      std::ofstream(folder.path() / "file") << "x";
      if (!fs::exists(folder.path() / "file")) code = 1;
    }
    ::_exit(code);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(ListFolder(root_).empty());
}

TEST_F(ScratchFolderTest, SaysWhatIsWrongWithTmpdir) {
  for (const std::string& bad : {root_ + "/none", std::string("/dev/null")}) {
    ::setenv("TMPDIR", bad.c_str(), 1);
    try {
      const ScratchFolder folder;
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("Set TMPDIR"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme
