// The environments there are: a table that anybody can add to, and sources that find more by name.
//
//   struct MyOptions final : EnvOptions { ... };
//   AddEnv({.spec = ..., .facts = ..., .make = [](int size) { ... }, .options = ...});
//   AddEnvSource({.prefix = "gym:", .help = "environments of Gymnasium", .find = FindInGymnasium});
//   const EnvEntry& env = FindEnv("gym:Hopper-v4");
//
// Thread safety: everything here may be called from several threads at once. Entries stay where they are
// until the program ends, so references remain valid.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/env/env.h"

namespace trireme {

// The options of one environment, as settings. Independent of others; belongs to one thread.
class EnvOptions {
 public:
  virtual ~EnvOptions() = default;
  // In a run they are settings with kEnvOptionPrefix before their names.
  virtual void Fields(ConfigFields& field) = 0;
  // The environment with the options as they stand. Throws Error when they do not fit together.
  virtual EnvEntry Entry() const = 0;
};
inline constexpr const char* kEnvOptionPrefix = "env_";

// More environments, under names that begin with a prefix.
struct EnvSource {
  std::string prefix;  // "gym:"; ends with a colon
  std::string help;    // one line for `trireme envs`
  // The environment called prefix + name, which is also the name in its spec. Throws Error that says what
  // there is. Called once for each name that is found; may call AddEnv.
  std::function<EnvEntry(const std::string& name)> find;
};

// Throw Error for a name or prefix that is taken, and for a spec that describes no environment.
void AddEnv(EnvEntry entry);
void AddEnvSource(EnvSource source);

// The table and the sources as they stand, in the order they were added; built-in environments come first.
std::vector<EnvEntry> AllEnvs();
std::vector<EnvSource> AllEnvSources();

// Asks the table, then the source that claims the name's prefix. Throws Error with the nearest name when
// there is no such environment.
const EnvEntry& FindEnv(const std::string& name);
// The same with options, {{"max_steps", "200"}}. Throws Error for unknown ones, with the nearest name.
EnvEntry FindEnv(const std::string& name, std::span<const std::pair<std::string, std::string>> options);

}  // namespace trireme
