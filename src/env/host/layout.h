// What the program and a host process share in memory, so that a host can be written in any language. A host steps
// parts of batches: some copies of one environment, next to each other in a batch.
//
//   bell      one mapping of each host, from its start: HostBell
//   segment   one mapping of each batch, from message `open` on: HostSegment, then at the offsets it gives
//             HostPart[parts]            who wants what of each part
//             char[parts][kHostNote]     what a host has to say: failures and broken rules
//             char[parts][kHostNote]     what it says once and goes on after
//             uint32[envs]               seeds for kHostReset
//             int32 or float[envs, action_size]   choices from 0 on, or real numbers within the bounds
//             float[envs]                rewards; kHostPending where a command has not come to a copy yet
//             uint8[envs] twice          terminated, truncated: 0 when a command begins
//             [envs, obs_bytes] twice    observations; those that ended an episode
//             uint8[envs, choices] twice masks that belong to them; absent where choices is 0
//
// A command: the program writes what it takes, HostPart::command, and one more to HostPart::request; then it rings: one
// more to HostBell::rings, and a futex call where the host sleeps. The host carries it out, writes HostPart::done =
// request, and wakes the program where that waits. Each word has one writer, but for `rings`, which several threads of
// the program raise. A host looks at all its parts whenever it was rung for; several may be on their way at once.
//
// Everything else (making environments, saving them) is said in messages, see pool.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme {

inline constexpr std::uint32_t kHostMagic = 0x54524D48;
inline constexpr std::uint32_t kHostVersion = 1;
inline constexpr std::size_t kHostNote = 8192;
inline constexpr std::uint32_t kHostPending =
    0x7FC0BEEF;  // bits of a reward: a NaN that no computation gives

inline constexpr std::uint32_t kHostAnswering = 0xFFFFFFFF;

enum HostCommand : std::uint32_t {
  kHostStep = 1,   // a step of every copy with its action; a copy whose episode ends begins the next
  kHostReset = 2,  // the first episode of every copy, with its seed
};

struct HostBell {
  std::uint32_t magic, version;
  std::uint32_t rings;     // what a host sleeps on
  std::uint32_t sleeping;  // 1: it must be woken. The host's
  std::uint32_t messages;  // sent so far
  // 1 + number of the part it is working on, kHostAnswering while it answers a message, 0: nothing. The host's.
  std::uint32_t serving;
  // One more whenever something of an answer is done: a copy that was made, saved or loaded, a step. The host's. Who waits
  // for an answer sees by it that there will be one.
  std::uint32_t progress;
};

struct HostSegment {
  std::uint32_t magic, version;
  std::uint32_t envs, parts, action_size, choices, obs_bytes, unused;
  std::uint64_t parts_at, notes_at, warnings_at, seeds_at, actions_at, rewards_at;
  std::uint64_t terminated_at, truncated_at, obs_at, final_obs_at, masks_at, final_masks_at;
};

struct alignas(64) HostPart {
  std::uint32_t first, count;  // copies of the batch
  std::uint32_t request, command;
  std::uint32_t done;     // what the program sleeps on. The host's, as are those after `waiting`
  std::uint32_t waiting;  // 1: the program must be woken
  // Copies that raised so far and were made anew, the last of them, and its note.
  std::uint32_t failures, failed_env, note_size;
  // 1: a rule was broken, by `failed_env`: the note says how, and the command was left there.
  std::uint32_t offences;
  std::uint32_t warnings, warned_env, warning_size;
};

}  // namespace trireme
