// Plug-ins by name: files, folders, and what is no plug-in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/env/conformance.h"
#include "trireme/env/plugin/plugin_test_util.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

class PluginFile : public testing::Test {
 protected:
  std::string Refusal(const std::string& name) {
    return MessageOf([&] { FindEnv("plugin:" + name); });
  }
  const ScratchFolder folder_;
};

TEST_F(PluginFile, ThatIsNoPluginIsRefused) {
  const std::string folder = folder_.path().string();
  EXPECT_SAYS(Refusal(folder + "/libnone.so"), "there is no file " + folder + "/libnone.so");
  EXPECT_SAYS(Refusal("./libnone.so"), "there is no file");
  EXPECT_SAYS(Refusal(folder + "/"), "there is no file");
  std::ofstream(folder_.path() / "libtext.so") << "text";
  EXPECT_SAYS(Refusal(folder + "/libtext.so"), "cannot be loaded as a shared library");
  EXPECT_SAYS(Refusal("nowhere"), "there is no libnowhere.so in");
  EXPECT_SAYS(Refusal("nowhere"), "TRIREME_PLUGIN_PATH");
  EXPECT_SAYS(Refusal("libm.so.6"), "there is no lib");
  EXPECT_SAYS(Refusal(TRIREME_NO_ENV_PLUGIN), "does not export trireme_env_plugin");
  EXPECT_SAYS(Refusal(TRIREME_OTHER_VERSION_PLUGIN),
              "was made for version 2 of the plug-in interface, and this is version 1");
}

TEST_F(PluginFile, HasOneEnvironmentOrNamesThem) {
  const std::string file = TRIREME_FRAGILE_PLUGIN;
  EXPECT_SAYS(Refusal(file), "has 2 environments: choose one of plugin:" + file +
                                 ":Fragile-v0 plugin:" + file + ":Sturdy-v0");
  EXPECT_SAYS(Refusal(file + ":Sturdi-v0"), "Did you mean 'Sturdy-v0'?");
  const EnvEntry sturdy = FindEnv("plugin:" + file + ":Sturdy-v0");
  EXPECT_EQ(sturdy.spec.name, "plugin:" + file + ":Sturdy-v0");
  EXPECT_FALSE(sturdy.facts.snapshots);
  CheckEnv(sturdy);
  CheckEnv(FindEnv("plugin:" + file + ":Fragile-v0"));
  EXPECT_SAYS(MessageOf([&] {
                FindEnv("plugin:" + file + ":Sturdy-v0", {}, {{"a", true}});
              }),
              "takes no --env-arg");
  const std::pair<std::string, std::string> limit{"max_steps", "7"}, wrong{"max_steps", "1.5"};
  EXPECT_EQ(FindEnv("plugin:" + file + ":Sturdy-v0", {&limit, 1}).spec.max_episode_steps, 7);
  CheckEnv(FindEnv("plugin:" + file + ":Sturdy-v0", {&limit, 1}));
  EXPECT_SAYS(MessageOf([&] { FindEnv("plugin:" + file + ":Sturdy-v0", {&wrong, 1}); }), "no whole number");
}

// A run that was begun in one folder goes on from any other: the folder is an option, and no part of what it is.
TEST_F(PluginFile, IsFoundFromTheFolderThatIsNoted) {
  std::filesystem::create_directory(folder_.path() / "mine");
  std::filesystem::copy(TRIREME_FRAGILE_PLUGIN, folder_.path() / "mine/libfragile.so");
  const std::string name = "plugin:mine/libfragile.so:Sturdy-v0";
  EXPECT_SAYS(MessageOf([&] { FindEnv(name); }), "there is no file");
  const std::pair<std::string, std::string> folder{"folder", folder_.path().string()};
  EXPECT_EQ(FindEnv(name, {&folder, 1}).spec.name, name);
  EXPECT_FALSE(FindEnvOptions(name)->identifies("folder"));
  EXPECT_TRUE(FindEnvOptions(name)->identifies("max_steps"));
}

TEST_F(PluginFile, IsFoundAndListedInFoldersOfThePath) {
  std::filesystem::copy(TRIREME_FRAGILE_PLUGIN, folder_.path() / "libfragile.so");
  std::ofstream(folder_.path() / "text.so") << "text";
  setenv("TRIREME_PLUGIN_PATH", ("/nowhere::" + folder_.path().string()).c_str(), 1);
  EXPECT_EQ(FindEnv("plugin:fragile:Sturdy-v0").spec.name, "plugin:fragile:Sturdy-v0");
  const std::vector<EnvSource> sources = AllEnvSources();
  const auto source = std::ranges::find(sources, "plugin:", &EnvSource::prefix);
  ASSERT_NE(source, sources.end());
  const std::vector<EnvListing> listings = source->list();
  unsetenv("TRIREME_PLUGIN_PATH");
  ASSERT_EQ(listings.size(), 3u);
  EXPECT_EQ(listings[0].name, "plugin:fragile:Fragile-v0");
  EXPECT_EQ(listings[0].help, "breaks on request");
  EXPECT_EQ(listings[1].name, "plugin:fragile:Sturdy-v0");
  EXPECT_EQ(listings[2].name, "plugin:text");
  EXPECT_SAYS(listings[2].help, "cannot be loaded");
}

}  // namespace
}  // namespace trireme
