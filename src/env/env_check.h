// What every environment must do, as checks on its entry: in the tree or not, built in or found by a source.
// `trireme envs NAME --check` runs them, and so does a GoogleTest by conformance.h.
//
// A check throws Error that says what was found. What an environment's facts do not promise is not asked of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/env/env.h"

namespace trireme {

// The action of copy `id` at `step`: random, a pure function of its arguments, within the bounds, and allowed
// by `mask` (empty: everything is).
void RandomAction(const ActionSpace& space, std::span<const std::uint8_t> mask, std::uint32_t id,
                  std::uint64_t step, float* action);
// Of all copies of a batch, the first of which is first_id; those steps.
std::vector<float> RandomActions(const EnvBatch& batch, std::uint32_t first_id, std::uint64_t step);
void StepRandomly(EnvBatch& batch, std::uint32_t first_id, std::uint64_t step);

// One row of observations as numbers.
std::vector<float> ObsRow(const EnvBatch& batch, std::span<const std::byte> rows, int i);
// Everything a caller can see of copy i, and of all.
std::vector<double> Seen(const EnvBatch& batch, int i);
std::vector<std::vector<double>> SeenByAll(const EnvBatch& batch);

std::unique_ptr<EnvBatch> MakeReset(const EnvEntry& env, int size, std::uint64_t seed = 1,
                                    std::uint32_t first_id = 0);

// Steps: long enough for every copy to reach the time limit, where there is one and it is near.
int LongRun(const EnvEntry& env);

void CheckSpecAndViews(const EnvEntry& env);
// The defaults are the entry itself, and every option can be read back.
void CheckOptions(const EnvEntry& env);
// Episodes end and restart by the book; those that end together are listed in the order of their copies. Numbers are
// finite, and masks leave a choice.
void CheckEpisodes(const EnvEntry& env, int size = 13);
// The same seed and actions, the same bits.
void CheckReproducible(const EnvEntry& env);
// However copies are divided into batches: the same bits.
void CheckBatching(const EnvEntry& env);
// Two batches whose steps are begun and ended in turns, and whose actions are overwritten meanwhile, do what
// batches do that are stepped one after the other.
void CheckStepsApart(const EnvEntry& env);
// A loaded batch goes on with the same bits, and what does not fit is refused.
void CheckSnapshots(const EnvEntry& env);
// Pictures are of one size, the same twice, and change nothing.
void CheckPictures(const EnvEntry& env);

struct EnvCheck {
  const char* what;  // "episodes end and restart"
  void (*run)(const EnvEntry& env);
  bool EnvFacts::*promised = nullptr;  // what it is for; null: everybody
};
// All of them.
std::span<const EnvCheck> EnvChecks();

}  // namespace trireme
