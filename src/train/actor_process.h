// A process that does nothing but collect for a learner elsewhere (trireme actor): some actors, a thread and a stream each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/experience/remote_actor.h"
#include "trireme/nn/network.h"
#include "trireme/train/run_config.h"

namespace trireme {

struct ActorOptions {
  LearnerPlace learner;
  int actors = 1;
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

// Blocks until the run is over, or learner.stop; returns how many trajectories were sent. What fails in one actor ends all.
// Throws Error.
std::uint64_t RunActors(const ActorOptions& options);

// What an actor and its learner must have alike, for people to compare.
std::string LooksOf(const RunSettings& settings, const Network& network);

}  // namespace trireme
