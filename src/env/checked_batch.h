// Batches that are what their entry says. An environment may come from anywhere, and what steps it takes the sizes of
// its views from the entry: so whoever steps one makes it here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/env/env.h"

namespace trireme {

// A batch of `size` copies at the start of their episodes (EnvBatch::Reset). Throws Error that names the environment
// when there is none, or when its description, its views or its snapshots are not those of the entry.
std::unique_ptr<EnvBatch> MakeBatch(const EnvEntry& env, int size, std::uint64_t seed, Purpose purpose,
                                    std::uint32_t first_id);

// The same with pictures. Throws Error also when the environment has none, or no rate of them.
std::unique_ptr<EnvBatch> MakeDrawnBatch(const EnvEntry& env, int size, std::uint64_t seed, Purpose purpose,
                                         std::uint32_t first_id);

// For an environment that has masks. Throw Error unless some choice of every part is allowed: to all copies now, or to
// the one whose episode has just ended.
void CheckMasks(const EnvBatch& batch);
void CheckFinalMask(const EnvBatch& batch, int copy);

// For what batch.finished() gave, if that was not empty. Throws Error unless each copy is named once, in ascending
// order, and its flags tell the same.
void CheckFinished(const EnvBatch& batch, std::span<const EpisodeEnd> finished);

}  // namespace trireme
