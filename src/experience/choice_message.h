// Requests of actors in other processes for choices, and these (central_inference.h), as messages:
//
//   request   ChoiceHeader, then rows (env/row.h) of the environments, [n, width]
//   choices   ChoiceHeader of the request, then actions, [n, action_size], and `extra`, [n]
//
// They begin with 0 where trajectories and policies have their number.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/experience/trajectory_message.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct ChoiceHeader {
  std::uint64_t zero = 0;
  std::uint64_t step = 0;            // of the actor's environments, since it joined
  std::int32_t first = 0, envs = 0;  // which of its environments: first, first + 1, ...
};

// A request as it came, with memory for what is asked for.
struct ChoiceRequest {
  ChoiceHeader header;
  std::vector<float> rows, obs, actions, extra;
  std::vector<std::uint8_t> masks;
};

// request.rows are sent. `first_env`: of the actor.
Outgoing EncodeRequest(const ActionRequest& request, std::uint32_t first_env, std::size_t width);
// After its number was read. Throws Error when it is nothing that an actor of this shape would ask.
void DecodeRequest(Incoming& message, const TrajectoryShape& shape, ChoiceRequest& to);

Outgoing EncodeChoices(const ChoiceRequest& request);
// After its number was read: to where the request wants them. Throws Error when they are for another one.
void DecodeChoices(Incoming& message, const ActionRequest& request, std::uint32_t first_env,
                   std::size_t action_size);

}  // namespace trireme
