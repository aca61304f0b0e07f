#include "trireme/env/plugin/source.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/plugin.h"
#include "trireme/base/text.h"
#include "trireme/env/folder.h"
#include "trireme/env/plugin/library.h"
#include "trireme/env/plugin/plugin_batch.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "plugin:";
constexpr const char* kPathVariable = "TRIREME_PLUGIN_PATH";

std::vector<fs::path> Folders() {
  std::vector<fs::path> folders;
  const char* chosen = std::getenv(kPathVariable);
  std::string_view rest = chosen == nullptr ? "" : chosen;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) folders.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  for (const fs::path& folder : PluginFolders()) folders.push_back(folder / "envs");
  return folders;
}

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Absolute, since the system looks for what has no slash elsewhere. `folder` is where relative paths begin.
fs::path FindFile(const std::string& library, const fs::path& folder) {
  if (library.find('/') != std::string::npos || library.ends_with(".so")) {
    fs::path path = folder / library;
    if (!IsFile(path)) Fail("{}{}: there is no file {}", kPrefix, library, path.lexically_normal().string());
    return path;
  }
  std::string searched;
  for (const fs::path& folder : Folders()) {
    for (const std::string& name : {"lib" + library + ".so", library + ".so"}) {
      if (IsFile(folder / name)) return fs::absolute(folder / name);
    }
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  Fail("{}{}: there is no lib{}.so in {}. Write a file with its path, {}./lib{}.so, or set {} to its folder",
       kPrefix, library, library, searched, kPrefix, library, kPathVariable);
}

struct PluginName {
  std::string library;
  std::string env;  // empty: the only one
};
PluginName Split(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos || name.find('/', colon) != std::string::npos) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

const trireme_env& Choose(std::span<const trireme_env* const> envs, const PluginName& name) {
  const std::string full = kPrefix + name.library;
  std::vector<std::string> names;
  for (const trireme_env* env : envs) {
    if (env->name == name.env) return *env;
    names.emplace_back(env->name);
  }
  if (name.env.empty() && envs.size() == 1) return *envs.front();
  std::string all;
  for (const std::string& one : names) all += fmt::format(" {}:{}", full, one);
  if (name.env.empty()) Fail("{} has {} environments: choose one of{}", full, envs.size(), all);
  Fail("{} has no environment '{}'.{} It has{}", full, name.env, SuggestNearest(name.env, names), all);
}

class PluginOptions final : public EnvOptions {
 public:
  explicit PluginOptions(const std::string& name) : name_(kPrefix + name), split_(Split(name)) {}

  void Fields(ConfigFields& field) override {
    field("max_steps", max_steps_,
          "steps after which an episode is cut off; 0: never; auto: what the plug-in says", "auto");
    folder_.AddTo(field);
  }
  void FillIn() override { folder_.FillIn(); }
  bool identifies(const std::string& field) const override { return field != EnvFolder::kName; }
  bool takes_args() const override { return env().option_count > 0; }
  std::string ArgsHelp() const override { return DescribeOptions(env()); }
  EnvEntry Entry(const EnvArgs& args) const override {
    if (max_steps_ && (!(*max_steps_ >= 0 && *max_steps_ <= 1e9) || *max_steps_ != std::floor(*max_steps_))) {
      Fail("{}: env_max_steps = {} is no whole number from 0 to 1000000000", name_, *max_steps_);
    }
    const auto limit = max_steps_ ? std::optional<int>(static_cast<int>(*max_steps_)) : std::nullopt;
    EnvEntry entry = PluginEntry(env(), args, name_, limit);
    entry.options = [options = *this] { return std::make_unique<PluginOptions>(options); };
    return entry;
  }

 private:
  // Loaded when it is asked for: only then is the folder known.
  const trireme_env& env() const {
    return Choose(LoadPlugin(FindFile(split_.library, folder_.Now()), kPrefix + split_.library), split_);
  }

  std::string name_;
  PluginName split_;
  EnvFolder folder_;
  std::optional<double> max_steps_;
};

// What a user would call this file.
std::string NameOf(const fs::path& file) {
  std::string name = file.stem().string();
  if (name.starts_with("lib")) name.erase(0, 3);
  return kPrefix + name;
}

void AddListings(const fs::path& file, std::vector<EnvListing>& listings) {
  const std::string name = NameOf(file);
  try {
    const auto envs = LoadPlugin(fs::absolute(file), name);
    for (const trireme_env* env : envs) {
      listings.push_back(
          {envs.size() == 1 ? name : fmt::format("{}:{}", name, env->name), PluginText(env->help)});
    }
  } catch (const Error& error) {
    listings.push_back({name, error.what()});
  }
}

std::vector<EnvListing> ListPlugins() {
  std::vector<EnvListing> listings;
  for (const fs::path& folder : Folders()) {
    std::vector<fs::path> files;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".so") files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const fs::path& file : files) AddListings(file, listings);
  }
  return listings;
}

}  // namespace

EnvSource PluginSource() {
  return {
      .prefix = kPrefix,
      .help = "environments in a shared library of your own: plugin:./libmine.so (docs/own-environment.md)",
      .options = [](const std::string& name) { return std::make_unique<PluginOptions>(name); },
      .list = ListPlugins};
}

}  // namespace trireme
