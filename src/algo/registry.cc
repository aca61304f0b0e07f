#include <vector>

#include "algo/a2c.h"
#include "algo/algorithm.h"
#include "algo/dqn.h"
#include "algo/ppo.h"
#include "base/text.h"

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
