// Where a learner draws from what was remembered: by itself (remembered_experience.h), or by replay servers.
//
//   Begin(parameters);  Draw(0, n, beta), Correct(0, errors), Draw(1, ...), ...;  Draw(0, n + 1, ...), ...;  Begin(...);  ...
//
// A round begins with the parameters that are to be collected with from now on, and goes on with draws for the shards of
// the worker: each its part of a batch, and back the errors of what was drawn.
//
// Thread safety: belongs to the learner's thread.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/state.h"
#include "trireme/replay/replay_part.h"
#include "trireme/rollout/trajectory.h"

namespace trireme {

class ReplaySource {
 public:
  virtual ~ReplaySource() = default;

  // Blocks while what this round brings is not there. Throws Error.
  virtual void Begin(std::span<const float> params) = 0;
  // Whether as much has been remembered for this shard, ever, as a shard of a run that has made so many steps has.
  virtual bool Holds(int shard, std::uint64_t steps) const = 0;
  // A shard's part of batch number `number` of the run, as it is until the next draw. Blocks, throws Error.
  virtual const ReplayDraw& Draw(int shard, std::uint64_t number, double beta) = 0;
  // The errors of the last draw, which was for this shard.
  virtual void Correct(int shard, std::span<const float> errors) = 0;
  // Episodes that ended in what was remembered for this shard since the last call.
  virtual EpisodeTotals TakeEpisodes(int shard) = 0;

  // What is remembered, where it is this worker's. Loading throws Error.
  virtual void Save(StateWriter& out) const = 0;
  virtual void Load(const StateReader& in) = 0;
};

}  // namespace trireme
