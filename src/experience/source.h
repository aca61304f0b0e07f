// Where a learner's experience comes from: it collects for itself, or others do and send it.
#pragma once

#include <span>

#include "trireme/rollout/trajectory.h"

namespace trireme {

class ExperienceSource {
 public:
  virtual ~ExperienceSource() = default;

  // What to learn from next with these parameters: one trajectory for each shard of the worker, collected with them or,
  // by others, with older ones. As they are until the next call. Blocks. Throws Error.
  virtual std::span<const Trajectory* const> Next(std::span<const float> params) = 0;
};

}  // namespace trireme
