// Methods that propose what to try next: grid, random, tpe, cmaes.
//
// A proposal is a function of the space, the seed, the history, the number of the trial and the attempt; nothing else. So a
// study that was killed goes on as if it had not been, and two searches with the same results make the same proposals.
// Samplers may remember what they have computed for an earlier history, never what would change a proposal.
//
// Thread safety: none; a sampler belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tune/space.h"

namespace trireme {

// A trial as samplers see it. Less is better, whatever the objective is.
struct PastTrial {
  enum class Outcome {
    kRunning,   // has a point, and no value yet
    kComplete,  // `value` is the objective
    kPruned,    // ended before its time: `value` is where it stood at `progress`
    kFailed,    // no value: worse than all others
  };
  Point point = {};
  Outcome outcome = Outcome::kRunning;
  double value = 0;
  double progress = 0;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // For trial `number`, where history[i] is trial i: those before it and perhaps some after it. `attempt` counts proposals
  // for the same trial that were of no use. Nothing when everything has been proposed.
  virtual std::optional<Point> Propose(std::span<const PastTrial> history, int number, int attempt) = 0;
};

struct SamplerOptions {
  std::uint64_t seed = 1;
  int grid_levels = 3;  // of parameters with more values than that
};

// What `--method` may name, first the default.
inline constexpr std::string_view kSamplers[] = {"tpe", "random", "grid", "cmaes"};

// The space must outlive the sampler. Throws Error for an unknown name.
std::unique_ptr<Sampler> MakeSampler(std::string_view name, const Space& space,
                                     const SamplerOptions& options);

// How many proposals a grid has; at most 1e18.
double GridSize(const Space& space, int levels);

}  // namespace trireme
