// Population-based training (Jaderberg et al. 2017, arXiv:1711.09846): members train side by side, and between two stretches
// those that are poor go on from the state of a good one, with settings a little off.
//
// A trial is one stretch of one member: trial n is stretch n / size of member n % size, and goes on from the state that its
// parent, a trial of the stretch before, has left. The worst fifth of those who have come to the end of that stretch take one
// of the best fifth for a parent. Settings that shape a run (Parameter::shapes) go along with the state unchanged.
//
// Everything is a pure function of the space, the seed and the history.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/tune/sampler.h"
#include "trireme/tune/space.h"
#include "trireme/tune/study.h"

namespace trireme {

class Population {
 public:
  // The space must outlive it.
  Population(const Space& space, std::uint64_t seed, int size) : space_(space), seed_(seed), size_(size) {}

  int size() const { return size_; }
  int StretchOf(int trial) const { return trial / size_; }
  // Whether all that decides about a trial is known: its member has ended the stretch before.
  bool Ready(std::span<const PastTrial> history, int trial) const;
  // Settings and parent of a trial that is ready. `attempt` counts proposals for the same trial that were of no use.
  Proposal Propose(std::span<const PastTrial> history, int trial, int attempt) const;

 private:
  Point Perturbed(const Point& point, int trial, int attempt) const;

  const Space& space_;
  const std::uint64_t seed_;
  const int size_;
};

}  // namespace trireme
