#include "trireme/base/folder_claim.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

TEST(FolderClaim, IsHeldByOneUntilItIsGivenBack) {
  const ScratchFolder root;
  const fs::path folder = root.path() / "folder";
  fs::create_directory(folder);
  {
    FolderClaim claim = FolderClaim::Try(folder);
    EXPECT_TRUE(claim.held());
    EXPECT_TRUE(claim.alone());
    const FolderClaim second = FolderClaim::Try(folder);
    EXPECT_FALSE(second.held());
    EXPECT_FALSE(second.alone());
    const FolderClaim moved = std::move(claim);
    EXPECT_TRUE(moved.held());
    EXPECT_TRUE(moved.alone());
    EXPECT_FALSE(FolderClaim::Try(folder).held());
  }
  EXPECT_TRUE(FolderClaim::Try(folder).held());
}

TEST(FolderClaim, NothingIsHeldOfWhatIsNotThereAndAFileIsAnError) {
  const ScratchFolder root;
  EXPECT_FALSE(FolderClaim::Try(root.path() / "missing").held());
  std::ofstream(root.path() / "file") << "x";
  EXPECT_THROW(FolderClaim::Try(root.path() / "file"), Error);
}

// A program that was started meanwhile, and still runs, has no part of it.
TEST(FolderClaim, IsNotInherited) {
  const ScratchFolder root;
  const fs::path folder = root.path() / "folder";
  fs::create_directory(folder);
  pid_t child = 0;
  {
    const FolderClaim claim = FolderClaim::Try(folder);
    ASSERT_TRUE(claim.held());
    char name[] = "/bin/sleep", seconds[] = "1000";
    char* const argv[] = {name, seconds, nullptr};
    ASSERT_EQ(::posix_spawn(&child, name, nullptr, nullptr, argv, nullptr), 0);
  }
  // A new program closes what it does not inherit when it begins, which may be a moment later.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  bool held = false;
  while (!held && std::chrono::steady_clock::now() < deadline) held = FolderClaim::Try(folder).held();
  EXPECT_TRUE(held);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Between opening a folder and locking it another one may take its name: as often as a link is set anew here.
TEST(FolderClaim, IsOnTheFolderThatStillHasTheName) {
  const ScratchFolder root;
  const fs::path link = root.path() / "link", next = root.path() / "next";
  for (const char* name : {"a", "b"}) fs::create_directory(root.path() / name);
  fs::create_directory_symlink("a", link);
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    for (int i = 1; !stop; ++i) {
      fs::create_directory_symlink(i % 2 == 0 ? "a" : "b", next);
      fs::rename(next, link);
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  bool refused = false;
  while (!refused && std::chrono::steady_clock::now() < deadline) refused = !FolderClaim::Try(link).held();
  stop = true;
  changer.join();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace trireme
