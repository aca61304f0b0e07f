#include "trireme/base/plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

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

TEST_F(Plugin, AnErrorThrownInALibraryIsCaughtOutside) {
  const char* library = "libtrireme_test_plugin.so";
  fs::copy(TRIREME_TEST_PLUGIN, folder_ / library);
  auto twice = reinterpret_cast<int (*)(int)>(PluginSymbol(library, "TriremeTestTwice", "tests"));
  EXPECT_EQ(MessageOf([&] { twice(-1); }), "negative: -1");
}

}  // namespace
}  // namespace trireme
