// The environments there are: a table that anybody can add to, and sources that find more by name.
//
//   AddEnv({.spec = ..., .facts = ..., .make = [](int size) { ... }, .options = ...});
//   AddEnvSource({.prefix = "gym:", .help = "environments of Gymnasium", .options = OptionsInGymnasium});
//   const EnvEntry env = FindEnv("gym:Hopper-v5");
//
// An environment is found in two steps, since what it is may depend on its options: by its name, which gives its
// options and starts nothing, and then with them. Whoever holds an EnvEntry owns what it has captured (a library,
// processes that step), and nobody else does: what nobody holds any more has ended.
//
// Thread safety: everything here may be called from several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/env/args.h"
#include "trireme/env/env.h"

namespace trireme {

// An environment that was asked for by name, before it is known with which options. Independent of others;
// belongs to one thread.
class EnvOptions {
 public:
  virtual ~EnvOptions() = default;
  // In a run they are settings with kEnvOptionPrefix before their names; "args" is taken.
  virtual void Fields(ConfigFields& field) = 0;
  // Fills in what is found out here and now, so that it is saved with a run and the same later and elsewhere.
  virtual void FillIn() {}
  // Whether another value of this field, or of "args", is another environment: false for what only says how it is run. A
  // resumed run may change that.
  virtual bool identifies(const std::string& field) const {
    static_cast<void>(field);
    return true;
  }
  // Whether there may be other arguments than Fields names.
  virtual bool takes_args() const { return false; }
  // Those that are known beforehand, a line each, for `trireme envs NAME`; empty where nobody can tell.
  virtual std::string ArgsHelp() const { return ""; }
  // The environment with the options as they stand, and these arguments: none unless takes_args(). Throws Error
  // when they do not fit together or are not understood.
  virtual EnvEntry Entry(const EnvArgs& args) const = 0;
};
inline constexpr const char* kEnvOptionPrefix = "env_";

// What is known of an environment that has not been made.
struct EnvListing {
  std::string name;  // with its prefix
  std::string help;  // one line
};

// More environments, under names that begin with a prefix.
struct EnvSource {
  std::string prefix;  // "gym:"; ends with a colon
  std::string help;    // one line for `trireme envs`
  // Of the environment called prefix + name, which must be the name in the spec of its Entry. Never null; starts
  // nothing. Throws Error that says what there is; so may Entry, where that is only known then.
  std::function<std::unique_ptr<EnvOptions>(const std::string& name)> options;
  // What it would find, for `trireme envs --all`; null where nobody can tell. May take long. Throws Error.
  std::function<std::vector<EnvListing>()> list = nullptr;
};

// Throw Error for a name or prefix that is taken, for a spec that describes no environment, and where the function
// that makes or finds environments is null.
void AddEnv(EnvEntry entry);
void AddEnvSource(EnvSource source);

// The table and the sources as they stand, in the order they were added; built-in environments come first.
std::vector<EnvEntry> AllEnvs();
std::vector<EnvSource> AllEnvSources();

// Asks the table, then the source that claims the name's prefix. Never null. Throws Error with the nearest name
// when there is no such environment.
std::unique_ptr<EnvOptions> FindEnvOptions(const std::string& name);
// The environment with these options, which are those of `name`. Throws Error when they do not fit together, when
// there are arguments and it takes none, and when what is found is no environment of this name.
EnvEntry FindEnv(const std::string& name, const EnvOptions& options, const EnvArgs& args = {});

// Both at once: with the default options, except these, {{"max_steps", "200"}}. Throws Error for unknown ones,
// with the nearest name.
EnvEntry FindEnv(const std::string& name, std::span<const std::pair<std::string, std::string>> options = {},
                 const EnvArgs& args = {});

}  // namespace trireme
