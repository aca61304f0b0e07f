// How much each parameter mattered for what trials found: a forest of random trees foretells the rank of a trial from its point, and
// the importance of a parameter is how much worse trees foretell trials they have not seen when its values are mixed up among these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/tune/sampler.h"

namespace trireme {

inline constexpr std::size_t kFewestForImportance = 20;  // trials that have ended with a value

// Shares that add up to 1, one for each parameter; empty: too few trials, or nothing can be foretold. A pure function.
std::vector<double> Importance(const Space& space, std::span<const PastTrial> history,
                               std::uint64_t seed = 1);

}  // namespace trireme
