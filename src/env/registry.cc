#include "trireme/env/registry.h"

#include <algorithm>
#include <deque>
#include <map>
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

namespace trireme {
namespace {

struct Registry {
  std::mutex mutex;            // guards the rest
  std::deque<EnvEntry> table;  // a deque: what is added at its end moves nothing
  std::deque<EnvSource> sources;
  std::map<std::string, EnvEntry> found;  // by sources, by full name
};

Registry& TheRegistry() {
  static Registry registry{
      .mutex = {},
      .table = {SoaEntry<CartPole>(), SoaEntry<MountainCar>(), SoaEntry<MountainCarContinuous>(),
                SoaEntry<Acrobot>(), SoaEntry<Pendulum>()},
      .sources = {},
      .found = {}};
  return registry;
}

[[noreturn]] void FailToFind(const std::string& name, const std::vector<std::string>& names,
                             const std::deque<EnvSource>& sources) {
  if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
    std::string prefixes;
    for (const EnvSource& source : sources) prefixes += " " + source.prefix;
    Fail("there is no environment '{}': no source claims '{}'; there are{}", name, name.substr(0, colon + 1),
         prefixes.empty() ? " none" : prefixes);
  }
  Fail("there is no environment '{}'.{} `trireme envs` lists them", name, SuggestNearest(name, names));
}

}  // namespace

void AddEnv(EnvEntry entry) {
  CheckSpec(entry.spec);
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

const EnvEntry& FindEnv(const std::string& name) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  std::vector<std::string> names;
  for (const EnvEntry& entry : registry.table) {
    if (entry.spec.name == name) return entry;
    names.push_back(entry.spec.name);
  }
  if (const auto known = registry.found.find(name); known != registry.found.end()) return known->second;
  const auto source = std::ranges::find_if(
      registry.sources, [&](const EnvSource& candidate) { return name.starts_with(candidate.prefix); });
  if (source == registry.sources.end()) FailToFind(name, names, registry.sources);
  const EnvSource claimed = *source;
  lock.unlock();  // whoever is asked may add environments, and take long
  EnvEntry entry = claimed.find(name.substr(claimed.prefix.size()));
  CheckSpec(entry.spec);
  if (entry.spec.name != name) {
    Fail("the source of '{}' gave '{}' for '{}'", claimed.prefix, entry.spec.name, name);
  }
  lock.lock();
  return registry.found.try_emplace(name, std::move(entry)).first->second;
}

EnvEntry FindEnv(const std::string& name, std::span<const std::pair<std::string, std::string>> options) {
  const EnvEntry& entry = FindEnv(name);
  if (options.empty()) return entry;
  if (!entry.options) Fail("{} has no options, so {} cannot be set", name, options.front().first);
  const std::unique_ptr<EnvOptions> chosen = entry.options();
  ConfigFields fields;
  fields.Add(*chosen);
  for (const auto& [key, value] : options) fields.Set(key, value, fmt::format("{}: {}", name, key));
  return chosen->Entry();
}

}  // namespace trireme
