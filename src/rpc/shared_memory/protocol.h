// What goes through the socket beside the memory that a client and its server share. Its end is the end of the stream, so each
// sees at once that the other has died.
//
//   client: kHello, the token, a line feed                server: kWelcome with the segment (SCM_RIGHTS), or a reason
//   afterwards, both: kWake, whenever the other sleeps    server, at last: a reason
//
// A reason is kReason or kCause, then text up to the end.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>

#include "trireme/rpc/transport.h"

namespace trireme {

// The number is the version of all of this: socket, segment, rings and messages.
inline constexpr std::string_view kHello = "trireme shm 1 ";
inline constexpr std::size_t kLongestHello = kHello.size() + 1024 + 1;
inline constexpr std::size_t kLongestReason = 4096;

enum SocketByte : char {
  kWake = 0,
  kWelcome = 1,
  kReason = 2,  // the client's Stream::why() is the text,
  kCause = 3,   // or the address and the text
};

// Milliseconds for poll(), rounded up, so that nobody is back too early.
inline int MillisecondsUntil(Deadline deadline) {
  const Deadline now = Clock::now();
  if (deadline <= now) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(
                              std::min<Clock::duration>(deadline - now, std::chrono::hours(1)))
                              .count());
}

}  // namespace trireme
