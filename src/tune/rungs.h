// Ending poor trials early, by rungs: numbers of steps at which a trial must be among the best third of all that came there.
//
// ASHA (Li et al. 2018, arXiv:1810.05934), where trials that are good enough go on at once and nobody waits: who comes to a rung
// is compared with those who were there before. Hyperband (Li et al. 2016, arXiv:1603.06560) does not trust early rungs
// blindly: trials are dealt to brackets whose first rung comes later and later, the last of which ends nobody early.
// Everything is a pure function of what trials have reported.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

inline constexpr int kReduction = 3;  // one of so many goes on

// steps / 3, steps / 9, ..., not below `least` nor more than four; smallest first. Empty: too few steps for any.
std::vector<std::int64_t> RungSteps(std::int64_t steps, std::int64_t least);

// Whether a trial goes on after a rung where it has `value` and those who came before it `others`. Less is better.
bool GoesOn(double value, std::span<const double> others);

// Brackets of Hyperband: bracket b leaves out the b first of `rungs` rungs. Trials are dealt so that brackets get about the same
// number of steps, in an order that repeats.
int BracketOf(int trial, int rungs);

}  // namespace trireme
