// `--parallel auto`: which way to train in parallel is the fastest here.
//
// What makes sense where the run is, fits into memory and leaves what was given as it is, is tried for a moment
// (trial.h). The fastest is taken; but one that gives something up, exact repetition or the parameters that one worker
// would arrive at, only if it is faster by more than kWorthIt.
//
// Choices, Fastest and ChoiceLine are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/system.h"
#include "trireme/metrics/figures.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// Settings of a run that can be chosen, as RunConfig has them.
struct Choice {
  int workers = 1;  // of each process
  std::string store = "allreduce", compress = std::string(kNoCodec), model_parallel = "none";

  bool operator==(const Choice&) const = default;
  std::string text() const;
};

// Those of them that were given, and stay as they are.
struct GivenChoice {
  std::optional<int> workers = {};
  std::optional<std::string> store = {}, compress = {}, model_parallel = {};
};

// Where the run is.
struct Surroundings {
  int processes = 1, processors = 1;  // of each
  std::size_t params = 0;
  // Workers on their own would train with the same settings of the algorithm, and it can do with such workers.
  bool may_go_alone = false;
};

// Smaller networks are not divided: a message takes longer than what it saves.
inline constexpr std::size_t kWorthSplitting = 250'000;
inline constexpr double kWorthIt = 1.1;

// All that make sense; settings may still refuse one of them. Those that give up nothing come first.
std::vector<Choice> Choices(const GivenChoice& given, const Surroundings& surroundings);

// What a run with this choice gives up, of which the user has said nothing: "" or, for people, "other rounding".
std::string GivesUp(const Choice& choice, const GivenChoice& given);

struct TriedChoice {
  Choice choice;
  std::string gives_up = {};
  double steps_per_s = kUnknown;
};

// The one to take. Requires one with a rate.
std::size_t Fastest(std::span<const TriedChoice> tried);

// One line for people: what was chosen, what it gives up, and what came next.
std::string ChoiceLine(std::span<const TriedChoice> tried, std::size_t chosen, int too_large);

// Memory that parameters, moments, gradients and experience take in this process, about. `settings` are resolved.
std::uint64_t MemoryNeeded(const RunSettings& settings, std::size_t params);

// Chooses in about `seconds`, or what a few updates of each choice take: `settings` then have the choice and
// predicted_steps_per_s, and are resolved. They need not be before. All processes of `options` call it, and come to the same choice.
// Returns ChoiceLine. Throws Error, also when it was stopped.
// `free_bytes`: of this host.
std::string ChooseParallel(const GivenChoice& given, const TrainOptions& options, int processors,
                           double seconds, RunSettings& settings,
                           std::uint64_t free_bytes = AvailableMemory());

}  // namespace trireme
