// How good the current policy is: mean return of fixed episodes on seeds never used in training, acting
// greedily.
//
// Episode e of an evaluation is the same for every run of the same seed, whoever runs it. Episodes are
// grouped by shard, each worker runs the groups of its own shards, and the returns are exchanged: all workers
// get the same result, whatever their number.
//
// Environments that step elsewhere are several parts: all others are on their way while actions are chosen for one.
//
// Thread safety: none; each worker has its own. Environments are made for the first evaluation and kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/comm/communicator.h"

namespace trireme {

struct Evaluation {
  double mean = 0;
  double std = 0;
  int episodes = 0;
  int cut_off = 0;  // of them, by EvaluationPlan::max_steps
};

// What it means, for people: "3 of 100 episodes ...". Requires that some were cut off.
std::string DescribeCutOff(int cut_off, int episodes, int max_steps);

struct EvaluationPlan {
  std::uint64_t seed = 0;
  int episodes = 100;
  int groups = 1;
  // Where the environment has no time limit, an episode ends after so many steps; its return is what it had.
  int max_steps = 10'000;
};

// What ends an evaluation before its time, between two steps. That of the worker that leads ends it for all, so that
// all know alike whether there was one.
struct EvaluationStop {
  std::function<bool()> requested = [] { return false; };
  bool leads = true;
  bool may_leave = false;  // does not lead, and the others go on without this worker
};

class Evaluator {
 public:
  Evaluator(const EnvEntry& env, const EvaluationPlan& plan);
  ~Evaluator();

  // Blocks on the other workers; all must call it. The worker's groups are [first, first + own). Nothing when it was
  // stopped.
  std::optional<Evaluation> Run(Algorithm& algorithm, Communicator& comm, int first, int own,
                                const EvaluationStop& stop = {});

 private:
  struct Episodes;  // of all groups
  class Part;       // of the copies

  // Both return whether they came to the end.
  bool RunGroup(Algorithm& algorithm, int group, const std::function<bool()>& stop, Episodes& all);
  bool RunEpisodes(Algorithm& algorithm, int begin, int end, const std::function<bool()>& stop,
                   Episodes& all);

  const EnvEntry& env_;
  EvaluationPlan plan_;
  // As many copies as the largest group has episodes that are acted for at a time. Smaller groups use the first ones.
  std::vector<Part> parts_;
};

}  // namespace trireme
