// Store `allreduce` with model_parallel: groups of workers that compute one network together, and data parallelism around
// them. Rank r is member r % members of group r / members. Members of a group have the same shards, and gradients are
// summed over the members of all groups that hold the same part.
//
// A group is made of threads of one process, or of processes with one worker each.
#pragma once

#include <memory>

#include "trireme/train/stores.h"

namespace trireme {

std::unique_ptr<Topology> MakeSplitTopology(const RunContext& context);

}  // namespace trireme
