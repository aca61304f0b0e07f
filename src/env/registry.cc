#include "trireme/env/registry.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/env/batch.h"
#include "trireme/env/classic/acrobot.h"
#include "trireme/env/classic/cart_pole.h"
#include "trireme/env/classic/mountain_car.h"
#include "trireme/env/classic/mountain_car_continuous.h"
#include "trireme/env/classic/pendulum.h"
#include "trireme/env/gym/source.h"
#include "trireme/env/plugin/source.h"

namespace trireme {
namespace {

struct Registry {
  std::mutex mutex;  // guards the rest
  std::vector<EnvEntry> table;
  std::vector<EnvSource> sources;
};

Registry& TheRegistry() {
  static Registry registry{
      .mutex = {},
      .table = {SoaEntry<CartPole>(), SoaEntry<MountainCar>(), SoaEntry<MountainCarContinuous>(),
                SoaEntry<Acrobot>(), SoaEntry<Pendulum>()},
      .sources = {PluginSource(), GymSource(), PySource()}};
  return registry;
}

[[noreturn]] void FailToFind(const std::string& name, const std::vector<EnvEntry>& table,
                             const std::vector<EnvSource>& sources) {
  if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
    std::string prefixes;
    for (const EnvSource& source : sources) prefixes += " " + source.prefix;
    Fail("there is no environment '{}': no source claims '{}'; there are{}", name, name.substr(0, colon + 1),
         prefixes.empty() ? " none" : prefixes);
  }
  std::vector<std::string> names(table.size());
  std::ranges::transform(table, names.begin(), [](const EnvEntry& entry) { return entry.spec.name; });
  Fail("there is no environment '{}'.{} `trireme envs` lists them", name, SuggestNearest(name, names));
}

// Of a row of the table that has none.
class NoOptions final : public EnvOptions {
 public:
  explicit NoOptions(EnvEntry entry) : entry_(std::move(entry)) {}
  void Fields(ConfigFields&) override {}
  EnvEntry Entry(const EnvArgs&) const override { return entry_; }

 private:
  EnvEntry entry_;
};

[[noreturn]] void RefuseArgs(const std::string& name, const EnvArgs& args) {
  const std::unique_ptr<EnvOptions> options = FindEnvOptions(name);
  ConfigFields fields;
  fields.Add(*options, kEnvOptionPrefix);
  std::string known;
  for (const std::string& option : fields.Names()) known += fmt::format(" --set {}=VALUE", option);
  Fail("{} takes no --env-arg, so {} cannot be given; its options are{}", name, EnvArgText(args.front()),
       known.empty() ? " none" : known);
}

std::unique_ptr<EnvOptions> NotNull(std::unique_ptr<EnvOptions> options, const std::string& name) {
  if (options == nullptr) Fail("the environment '{}' gives no options, not even none", name);
  return options;
}

void CheckEntry(const EnvEntry& entry) {
  CheckSpec(entry.spec);
  if (!entry.make) Fail("the environment '{}' has no function that makes batches", entry.spec.name);
}

}  // namespace

void AddEnv(EnvEntry entry) {
  CheckEntry(entry);
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  for (const EnvEntry& other : registry.table) {
    if (other.spec.name == entry.spec.name) Fail("there is an environment '{}' already", entry.spec.name);
  }
  registry.table.push_back(std::move(entry));
}

void AddEnvSource(EnvSource source) {
  if (source.prefix.size() < 2 || source.prefix.find(':') != source.prefix.size() - 1) {
    Fail("'{}' is no prefix for environments: it must end with its only colon, as in gym:", source.prefix);
  }
  if (!source.options) Fail("the source of '{}' has no function that finds environments", source.prefix);
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  for (const EnvSource& other : registry.sources) {
    if (other.prefix == source.prefix) Fail("'{}' is claimed by a source already", source.prefix);
  }
  registry.sources.push_back(std::move(source));
}

std::vector<EnvEntry> AllEnvs() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  return {registry.table.begin(), registry.table.end()};
}

std::vector<EnvSource> AllEnvSources() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  return {registry.sources.begin(), registry.sources.end()};
}

std::unique_ptr<EnvOptions> FindEnvOptions(const std::string& name) {
  // Copies: whoever is asked may add environments, and take long.
  const std::vector<EnvEntry> table = AllEnvs();
  const auto row = std::ranges::find(table, name, [](const EnvEntry& entry) { return entry.spec.name; });
  if (row != table.end() && !row->options) return std::make_unique<NoOptions>(*row);
  if (row != table.end()) return NotNull(row->options(), name);
  const std::vector<EnvSource> sources = AllEnvSources();
  const auto source = std::ranges::find_if(
      sources, [&](const EnvSource& candidate) { return name.starts_with(candidate.prefix); });
  if (source == sources.end()) FailToFind(name, table, sources);
  return NotNull(source->options(name.substr(source->prefix.size())), name);
}

EnvEntry FindEnv(const std::string& name, const EnvOptions& options, const EnvArgs& args) {
  if (!args.empty() && !options.takes_args()) RefuseArgs(name, args);
  EnvEntry entry = options.Entry(args);
  CheckEntry(entry);
  if (entry.spec.name != name) Fail("'{}' was found where '{}' was looked for", entry.spec.name, name);
  return entry;
}

EnvEntry FindEnv(const std::string& name, std::span<const std::pair<std::string, std::string>> options,
                 const EnvArgs& args) {
  const std::unique_ptr<EnvOptions> chosen = FindEnvOptions(name);
  ConfigFields fields;
  fields.Add(*chosen);
  if (!options.empty() && fields.fields().empty()) {
    Fail("{} has no options, so {} cannot be set", name, options.front().first);
  }
  for (const auto& [key, value] : options) fields.Set(key, value, fmt::format("{}: {}", name, key));
  return FindEnv(name, *chosen, args);
}

}  // namespace trireme
