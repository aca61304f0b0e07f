// A shared library with environments (trireme/env_plugin.h): loading it, and what it says it has.
//
// Thread safety: everything here may be called from several threads at once.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/env/args.h"
#include "trireme/env/spec.h"
#include "trireme/env_plugin.h"

namespace trireme {

// The environments of a library, which stays loaded until the program ends. `origin` is what a user calls it. Throws Error
// when it is no library, no plug-in, of another version, or when its table is not whole.
std::span<const trireme_env* const> LoadPlugin(const std::filesystem::path& file, const std::string& origin);
// Of a table that was loaded.
std::span<const trireme_env* const> CheckPlugin(const trireme_plugin* plugin, const std::string& origin);

// Values for all options of an environment: those given, checked, and the defaults. Immovable: `values` refers to `texts`.
class PluginValues {
 public:
  // Throws Error that begins with `origin` for what is unknown or does not fit.
  PluginValues(const trireme_env& env, const EnvArgs& args, const std::string& origin);
  PluginValues(const PluginValues&) = delete;
  PluginValues& operator=(const PluginValues&) = delete;

  const trireme_value* data() const { return values_.data(); }
  std::span<const trireme_value> all() const { return values_; }

 private:
  std::vector<std::string> texts_;  // [options]
  std::vector<trireme_value> values_;
};

// The options for `trireme envs NAME`, a line each; empty where there are none.
std::string DescribeOptions(const trireme_env& env);

struct PluginFacts {
  EnvSpec spec;
  bool reproducible = false;
  bool snapshots = false;
};
// What the environment is with these values, under the name `origin`. Throws Error for what is no environment.
PluginFacts DescribePlugin(const trireme_env& env, const PluginValues& values, const std::string& origin);

}  // namespace trireme
