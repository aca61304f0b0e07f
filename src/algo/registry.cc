#include <vector>

#include "trireme/algo/a2c.h"
#include "trireme/algo/algorithm.h"
#include "trireme/algo/dqn.h"
#include "trireme/algo/ppo.h"
#include "trireme/base/text.h"

namespace trireme {

std::span<const AlgorithmEntry> AllAlgorithms() {
  static const std::vector<AlgorithmEntry> table = {PpoEntry(), A2cEntry(), DqnEntry()};
  return table;
}

const AlgorithmEntry& FindAlgorithm(const std::string& name) {
  std::vector<std::string> names;
  for (const AlgorithmEntry& entry : AllAlgorithms()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  Fail("unknown algorithm '{}'.{} `trireme algos` lists them.", name, SuggestNearest(name, names));
}

}  // namespace trireme
