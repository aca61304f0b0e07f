#include "trireme/env/folder.h"

#include <gtest/gtest.h>

#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class EnvFolderTest : public testing::Test {
 protected:
  EnvFolderTest() {
    fields_.Add(*this);
    fs::create_directories(scratch_.path() / "a/b");
    fs::current_path(scratch_.path() / "a");
  }
  ~EnvFolderTest() override { fs::current_path(before_); }

 public:
  void Fields(ConfigFields& field) { folder_.AddTo(field); }

 protected:
  std::string Noted() const { return fields_.Get("folder"); }
  std::string Quoted(const fs::path& path) const { return '"' + (scratch_.path() / path).string() + '"'; }

  const fs::path before_ = fs::current_path();
  const ScratchFolder scratch_;
  EnvFolder folder_;
  ConfigFields fields_;
};

TEST_F(EnvFolderTest, TheCurrentOneIsNotedAndKept) {
  EXPECT_EQ(Noted(), "\"\"");
  EXPECT_EQ(folder_.Now(), scratch_.path() / "a") << "not noted yet";
  folder_.FillIn();
  EXPECT_EQ(Noted(), Quoted("a"));
  fs::current_path(before_);
  folder_.FillIn();
  EXPECT_EQ(Noted(), Quoted("a"));
  EXPECT_EQ(folder_.Now(), scratch_.path() / "a");
}

TEST_F(EnvFolderTest, OneThatIsChosenBecomesAbsolute) {
  for (const char* chosen : {"b", "./b/", "../a/b"}) {
    fields_.Set("folder", chosen, "test");
    folder_.FillIn();
    EXPECT_EQ(Noted(), Quoted("a/b")) << chosen;
  }
  fields_.Set("folder", "/", "test");
  folder_.FillIn();
  EXPECT_EQ(Noted(), "\"/\"");
}

TEST_F(EnvFolderTest, WhereItIsNoMoreTheCurrentOneWillDo) {
  fields_.Set("folder", "b", "test");
  folder_.FillIn();
  fs::remove(scratch_.path() / "a/b");
  EXPECT_EQ(folder_.Now(), scratch_.path() / "a");
  fs::remove(scratch_.path() / "a");
  EXPECT_EQ(folder_.Now(), "");
  folder_.FillIn();
  EXPECT_EQ(Noted(), Quoted("a/b")) << "what was noted stays";
}

}  // namespace
}  // namespace trireme
