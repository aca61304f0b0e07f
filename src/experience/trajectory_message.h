// Trajectories and policies as messages between processes, numbers as the memory of an x86-64 has them.
//
//   trajectory   TrajectoryHeader, then as in rollout/trajectory.h: obs, actions, extra, rewards, terminated, truncated,
//                truncated_samples, truncated_obs
//   policy       PolicyHeader, then the parameters, or none of them where the actor has this version already
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/base/error.h"
#include "trireme/env/row.h"
#include "trireme/env/spec.h"
#include "trireme/experience/channel.h"
#include "trireme/rollout/trajectory.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class MessageMemory;

// What the trajectories of a run look like.
struct TrajectoryShape {
  EnvSpec env = {};
  int steps = 0, envs = 0;

  // Of the longest message with one.
  std::size_t most_bytes() const;
};

struct TrajectoryHeader {
  std::uint64_t number;  // of an actor's trajectories, from 1
  std::uint64_t policy;
  std::int32_t steps, envs;
  std::uint64_t cut_off;  // episodes
  double episodes, return_sum, length_sum;
};

struct PolicyHeader {
  std::uint64_t version;
  std::uint64_t params;  // that follow
};

// What every message of an actor and its learner begins with, once they know each other: the number of a trajectory or the
// version of a policy, from 1; 0 where it is neither (choice_message.h). Throws Error when the message is too short.
std::uint64_t ReadNumber(Incoming& message);

// memory: where there is some for the message (message_parts.h).
Outgoing EncodeTrajectory(const Trajectory& trajectory, std::uint64_t number,
                          MessageMemory* memory = nullptr);
// After its number was read. Into the memory of `to`, if it has any. Throws Error when the message is no trajectory of this
// shape, or one that nobody could have collected: what is no number, a choice that there is not or that was not
// allowed, ends of episodes that contradict each other. NoChoices where probabilities, or actions of numbers, are not finite.
void DecodeTrajectory(Incoming& message, const TrajectoryShape& shape, Trajectory& to);
// So choose actors whose policy has diverged, and others who are out of order.
class NoChoices final : public Error {
 public:
  using Error::Error;
};
// Throws Error unless all numbers in rows of `layout` are finite, and all masks 0 or 1. `what` they are of: "a trajectory".
void CheckRows(const RowLayout& layout, std::span<const float> rows, const char* what);

Outgoing EncodePolicy(std::uint64_t version, std::span<const float> params);
// After its version was read. Null: it is the version that `had` is of. Throws Error when the message is no policy of so many parameters.
std::shared_ptr<const PublishedPolicy> DecodePolicy(Incoming& message, std::uint64_t version,
                                                    std::size_t params, const PublishedPolicy* had);

}  // namespace trireme
