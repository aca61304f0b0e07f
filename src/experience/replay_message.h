// What a learner and a replay server say to each other, over a stream of its own. The learner speaks first:
//
//   {"learn": version}       text
//   the run                  ReplayRun
//                            {"welcome": ..., "inserted": ...}  text
//   a policy                 kPolicy, then as in trajectory_message.h
//   a turn                   kTurn, ReplayTurn, numbers and errors of transitions that it has learned from
//                            draws, as many as it asked for, in one message or several: ReplayAnswer, then of each
//                            numbers, weights, records (ReplayBuffer), up to a multiple of 8 bytes. While they have to wait,
//                            once a second a ReplayAnswer without draws: the server is there
//   {"over": true}           kOver: the run has ended
//
// A learner that is refused is told why, after kReplayRefuses: other servers say other things. Draws are answered in the
// order in which they were asked for, when the rate limiter allows it. For small ones messages cost more than drawing, so
// what may go at the same time goes together.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/experience/trajectory_message.h"
#include "trireme/replay/rate_limiter.h"
#include "trireme/replay/replay_part.h"
#include "trireme/rpc/transport.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

inline constexpr std::string_view kReplayRefuses = "replay: ";

// What a replay server is to remember, for whom.
struct ReplayRun {
  std::string id;  // of the run, wherever and however often it goes on: 1 to 200 bytes
  // Alike for all that has to do with one memory:
  std::string looks;  // environment and network, as actors compare them
  TrajectoryShape shape;
  ReplayRules rules;
  // May change when the run goes on:
  RateLimiter::Rules rate;
  std::uint64_t part = 0;  // transitions of one draw
  std::string settings;    // for actors
  std::uint64_t params = 0, seed = 0;
  std::uint32_t server = 0, servers = 1;  // which of how many this one is
  std::uint32_t learner = 0;              // the rank of the learner

  std::string Encode() const;
  // Throws Error when it is damaged or makes no sense.
  static ReplayRun Decode(const std::string& text);
  // What must be the same to go on with what is remembered, as text for people.
  std::string Identity() const;
};

enum class ReplayWord : std::uint64_t { kPolicy = 1, kTurn = 2, kOver = 3 };

struct ReplayTurn {
  std::uint64_t wanted = 0;     // draws that are asked for
  double beta = 0;              // of them
  std::uint64_t corrected = 0;  // errors that follow
};
Outgoing EncodeTurn(const ReplayTurn& turn, std::span<const std::uint64_t> numbers,
                    std::span<const float> errors);

struct ReplayAnswer {
  std::uint64_t draws = 0;  // that follow
  std::uint64_t inserted = 0, overwritten_errors = 0;
  std::uint64_t actors = 0;  // that are there
  // Since the last answer to anybody: episodes that have ended, and how many versions old the policies of trajectories were
  // when they came.
  EpisodeTotals episodes = {};
  Staleness lag = {};
};
std::size_t AnswerBytes(std::size_t draws, std::size_t part, std::size_t record_size);
// Floats that follow a draw, for the next one to lie as it must.
std::size_t DrawPadding(std::size_t part, std::size_t record_size);
// Throws Error when what follows are no draws of this size, or more than `most`. There may be none.
ReplayAnswer DecodeAnswer(Incoming& message, std::size_t part, std::size_t record_size, std::size_t most);
// The next draw of a message whose answer was read. `records`: memory.
void DecodeDraw(Incoming& message, const RowLayout& layout, int action_size, AlignedBuffer<float>& records,
                ReplayDraw& draw);

}  // namespace trireme
