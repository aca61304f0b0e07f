#include "trireme/base/plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Plugin : public testing::Test {
 protected:
  Plugin() {
    fs::create_directories(folder_);
    setenv("TRIREME_PLUGINS", folder_.c_str(), 1);
  }
  ~Plugin() override {
    unsetenv("TRIREME_PLUGINS");
    fs::remove_all(folder_);
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("plugin_test-" + std::to_string(getpid()));
};

TEST_F(Plugin, AnAbsentLibraryIsNamedWithWhatItIsForAndWhereItWasLookedFor) {
  EXPECT_FALSE(HavePlugin("libtrireme_none.so"));
  const std::string message = MessageOf([] { PluginSymbol("libtrireme_none.so", "Make", "teleportation"); });
  EXPECT_NE(message.find("this build has no teleportation"), std::string::npos) << message;
  EXPECT_NE(message.find("`make all`"), std::string::npos) << message;
  EXPECT_NE(message.find(folder_.string()), std::string::npos) << message;
  EXPECT_NE(message.find("/lib/trireme"), std::string::npos) << message;
}

TEST_F(Plugin, AFileThatIsNoLibraryIsRefused) {
  std::ofstream(folder_ / "libtrireme_text.so") << "text";
  EXPECT_TRUE(HavePlugin("libtrireme_text.so"));
  const std::string message = MessageOf([] { PluginSymbol("libtrireme_text.so", "Make", "text"); });
  EXPECT_NE(message.find("cannot load"), std::string::npos) << message;
}

TEST_F(Plugin, SymbolsAreFoundByName) {
  const char* library = "libtrireme_test_plugin.so";
  fs::copy(TRIREME_TEST_PLUGIN, folder_ / library);
  auto twice = reinterpret_cast<int (*)(int)>(PluginSymbol(library, "TriremeTestTwice", "tests"));
  EXPECT_EQ(twice(21), 42);
  const std::string message = MessageOf([&] { PluginSymbol(library, "TriremeTestThrice", "tests"); });
  EXPECT_NE(message.find("another version"), std::string::npos) << message;
}

TEST_F(Plugin, TheErrorSaysHowToGetIt) {
  const std::string message =
      MessageOf([] { PluginSymbol("libtrireme_none.so", "Make", "nothing", "`make nothing` builds it"); });
  EXPECT_NE(message.find("`make nothing` builds it; or set TRIREME_PLUGINS"), std::string::npos) << message;
}

TEST_F(Plugin, WhatALibraryNeedsIsReadWithoutLoadingIt) {
  const std::vector<std::string> needed = NeededLibraries(TRIREME_TEST_PLUGIN);
  const auto needs = [&](const std::string& name) {
    return std::ranges::any_of(needed, [&](const std::string& each) { return each.starts_with(name); });
  };
  EXPECT_TRUE(needs("libfmt.so"));
  EXPECT_TRUE(needs("libstdc++.so"));
  EXPECT_FALSE(needs("libtorch"));
}

// Whatever the file holds: a piece of a library is no reason to read beyond its end.
TEST_F(Plugin, WhatIsNoLibraryNeedsNothing) {
  const fs::path file = folder_ / "piece.so";
  std::ifstream in(TRIREME_TEST_PLUGIN, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (const std::size_t size : {0, 3, 63, 64, 100, 500}) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    const std::string message = MessageOf([&] { NeededLibraries(file); });
    EXPECT_NE(message.find("is not a library that can be loaded"), std::string::npos)
        << size << ": " << message;
  }
  std::string other = whole;
  other[0] = 'x';
  std::ofstream(file, std::ios::binary | std::ios::trunc) << other;
  EXPECT_NE(MessageOf([&] { NeededLibraries(file); }).find("for this machine"), std::string::npos);
  EXPECT_NE(MessageOf([&] { NeededLibraries(folder_ / "none.so"); }).find("none.so"), std::string::npos);
}

TEST_F(Plugin, AnErrorThrownInALibraryIsCaughtOutside) {
  const char* library = "libtrireme_test_plugin.so";
  fs::copy(TRIREME_TEST_PLUGIN, folder_ / library);
  auto twice = reinterpret_cast<int (*)(int)>(PluginSymbol(library, "TriremeTestTwice", "tests"));
  EXPECT_EQ(MessageOf([&] { twice(-1); }), "negative: -1");
}

}  // namespace
}  // namespace trireme
