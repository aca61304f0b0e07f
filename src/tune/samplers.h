// What the samplers of sampler.h share, and how each is made.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/tune/sampler.h"

namespace trireme {

std::unique_ptr<Sampler> MakeGridSampler(const Space& space, const SamplerOptions& options);
std::unique_ptr<Sampler> MakeRandomSampler(const Space& space, const SamplerOptions& options);
std::unique_ptr<Sampler> MakeTpeSampler(const Space& space, const SamplerOptions& options);
std::unique_ptr<Sampler> MakeCmaEsSampler(const Space& space, const SamplerOptions& options);

// Random numbers of one attempt for one trial.
RandomStream DrawsOf(std::uint64_t seed, int number, int attempt);

// Place `number` of a sequence that fills the space evenly from its beginning: additive recurrence by powers of the root of
// x^(d+1) = x + 1, shifted by the seed. A later attempt is a random place.
std::vector<double> SpreadPlaces(std::uint64_t seed, std::size_t dimensions, int number, int attempt);

// Trials that have ended, by index, the best first: those that are complete by value, then those that were pruned, who came
// further first, then those that failed. Of equals the earlier one is first.
std::vector<int> Ranked(std::span<const PastTrial> history);

// The inverse of the standard normal distribution function, for 0 < p < 1.
double NormalQuantile(double p);
inline double NormalBelow(double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); }

}  // namespace trireme
