#include "trireme/server/service/membership.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Looks every quarter of a second until `until` and returns how many were put out.
std::size_t ExpireUntil(Membership& members, Deadline& now, Deadline until) {
  std::size_t expired = 0;
  for (; now <= until; now += milliseconds(250)) expired += members.Expire(now).size();
  return expired;
}

TEST(Membership, WhoeverIsSilentForALeaseIsPutOut) {
  Membership members(seconds(1), 0);
  Deadline now = Clock::now();
  members.Join(1, -1, 1, now);
  members.Join(2, -1, 2, now);
  EXPECT_EQ(ExpireUntil(members, now, now + seconds(1)), 0u);
  members.RenewLease(2, now);
  EXPECT_EQ(ExpireUntil(members, now, now + milliseconds(750)), 1u);
  EXPECT_EQ(members.Find(1), nullptr);
  EXPECT_NE(members.Find(2), nullptr);
}

// A server that was frozen has heard nobody; that is its own fault.
TEST(Membership, TheTimeInWhichTheServerStoodStillIsNoSilence) {
  Membership members(seconds(1), 0);
  Deadline now = Clock::now();
  members.Join(1, -1, 1, now);
  EXPECT_EQ(ExpireUntil(members, now, now + milliseconds(500)), 0u);
  now += seconds(30);
  EXPECT_EQ(members.Expire(now).size(), 0u);
  EXPECT_EQ(ExpireUntil(members, now, now + milliseconds(250)), 0u);
  EXPECT_EQ(ExpireUntil(members, now, now + seconds(1)), 1u);
}

TEST(Membership, ThereAreAsManyPlacesAsWasSaid) {
  Membership members(seconds(1), 600);
  const Deadline now = Clock::now();
  for (int i = 0; i < 600; ++i) EXPECT_EQ(members.Join(i, i % 3 == 0 ? i : -1, i, now).rank, i);
  EXPECT_THROW(members.Join(9000, -1, 9000, now), Error);
  EXPECT_THROW(members.Join(9000, 7, 9000, now), Error);
  EXPECT_EQ(members.size(), 600);
  members.Leave(17);
  EXPECT_EQ(members.Join(9000, 7, 9000, now).rank, 17);
}

}  // namespace
}  // namespace trireme
