// Where workers in step stand between two iterations: what the leader has decided, how far the run is and,
// where workers come and go, what all of them hold alike. Others enter there and nowhere else: whoever begins
// with what a boundary says is where everybody is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/communicator.h"
#include "trireme/train/run_state.h"

namespace trireme {

// What every worker hands in to the leader before it goes on.
enum class HandIn : std::uint8_t {
  kNothing,
  kAccounts,
  kStates,  // accounts and states, of which the leader writes a checkpoint
};

// What comes next.
struct Decision {
  HandIn hand_in = HandIn::kNothing;
  bool stop = false;
  bool again = false;  // nobody leads: the boundary is announced again, with whoever has entered there
};

// All call it. Returns what rank 0 has decided.
Decision BroadcastDecision(Communicator& comm, Decision own);

struct Boundary {
  Decision decision;
  std::optional<std::string> common = {};  // the algorithm's common state; without it nobody may enter here
};

// With what is common in `progress`.
std::string EncodeBoundary(const Boundary& boundary, RunProgress& progress);
// What is common in `progress` is then as it was there. Throws Error.
Boundary DecodeBoundary(std::string_view encoded, RunProgress& progress);

}  // namespace trireme
