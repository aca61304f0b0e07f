#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/algo/a2c.h"
#include "trireme/algo/algorithm.h"
#include "trireme/algo/apex.h"
#include "trireme/algo/appo.h"
#include "trireme/algo/dqn.h"
#include "trireme/algo/impala.h"
#include "trireme/algo/ppo.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

struct Registry {
  std::mutex mutex;                  // guards the table
  std::deque<AlgorithmEntry> table;  // what is added at its end moves nothing
};

Registry& TheRegistry() {
  static Registry registry{
      .mutex = {}, .table = {PpoEntry(), A2cEntry(), DqnEntry(), ImpalaEntry(), AppoEntry(), ApexEntry()}};
  return registry;
}

}  // namespace

void AddAlgorithm(AlgorithmEntry entry) {
  const bool drives = entry.discrete || entry.continuous || entry.multi_discrete;
  if (entry.name.empty() || !entry.make_settings || !drives) {
    Fail("'{}' is no algorithm: it needs a name, settings, and actions that it can drive", entry.name);
  }
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  for (const AlgorithmEntry& other : registry.table) {
    if (other.name == entry.name) Fail("there is an algorithm '{}' already", entry.name);
  }
  registry.table.push_back(std::move(entry));
}

std::vector<AlgorithmEntry> AllAlgorithms() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  return {registry.table.begin(), registry.table.end()};
}

const AlgorithmEntry& FindAlgorithm(const std::string& name) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::string> names;
  for (const AlgorithmEntry& entry : registry.table) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  Fail("unknown algorithm '{}'.{} `trireme algos` lists them.", name, SuggestNearest(name, names));
}

}  // namespace trireme
