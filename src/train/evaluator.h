// How good the current policy is: mean return of fixed episodes on seeds never used in training, acting
// greedily.
//
// Episode e of an evaluation is the same for every run of the same seed, whoever runs it. Episodes are
// grouped by shard, each worker runs the groups of its own shards, and the returns are exchanged: all workers
// get the same result, whatever their number.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/comm/communicator.h"

namespace trireme {

struct Evaluation {
  double mean = 0;
  double std = 0;
  int episodes = 0;
};

class Evaluator {
 public:
  Evaluator(const EnvEntry& env, std::uint64_t seed, int episodes, int groups)
      : env_(env), seed_(seed), episodes_(episodes), groups_(groups) {}

  // Blocks on the other workers; all must call it. The worker's groups are [first, first + own).
  Evaluation Run(Algorithm& algorithm, Communicator& comm, int first, int own) const;

 private:
  // Runs episodes [begin, end) and writes their returns there.
  void RunGroup(Algorithm& algorithm, int begin, int end, std::span<double> returns) const;

  const EnvEntry& env_;
  std::uint64_t seed_;
  int episodes_;
  int groups_;
};

}  // namespace trireme
