// What a trial process is told, and what it answers: one JSON object per line over a socket.
//
//   to it     the order; after every rung {"go": true} or {"go": false}
//   from it   {"alive": steps}                                        now and then
//             {"rung": k, "returns": [...]}                           waits for an answer
//             {"end": "done" | "stopped" | "capped", "steps": n, "returns": [...], "seeds": [...]}
//             {"error": "..."}
//             {"full": "..."}: the same, where a full disk may be the reason
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tune/objective.h"

namespace trireme {

struct TrialOrder {
  std::string config;  // all settings, TOML
  std::vector<std::uint64_t> seeds = {};
  std::vector<std::int64_t> rungs = {};  // in steps; empty: runs to its end
  Aim aim = {};
  // A stretch of a longer run (population.h): until so many steps, from the state in the folder `from` (empty: from the
  // beginning), leaving its own in `to`. An empty `to`: a whole run, without files.
  std::int64_t until = 0;
  std::string from = {}, to = {};
  // It ends when the mean over its seeds of what the objective counts, seconds or steps, is beyond this; 0: never.
  double cap = 0;

  std::string ToJson() const;
  // Throws Error.
  static TrialOrder Parse(const std::string& json);
};

}  // namespace trireme
