#include "trireme/replay/rate_limiter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

// Whoever wants to insert or draw next, and however much: the invariant holds, and one of the two may go on.
TEST(RateLimiter, KeepsTheRatioWithinItsSlackAndNeverStops) {
  RandomStream random(1, Purpose::kTest, 0, 0);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t insert = 1 + random.NextBelow(64), draw = 1 + random.NextBelow(256);
    RateLimiter::Rules rules{.draws_per_insert = 0.1 + 8 * random.NextUniform(),
                             .least = static_cast<double>(random.NextBelow(500))};
    rules.slack = rules.LeastSlack(static_cast<double>(insert), static_cast<double>(draw)) *
                  (random.NextBelow(2) == 0 ? 1 : 3);
    RateLimiter limiter(rules);
    double inserted = 0, drawn = 0;
    for (int step = 0; step < 3000; ++step) {
      const bool may_insert = limiter.MayInsert(insert), may_draw = limiter.MayDraw(draw);
      ASSERT_TRUE(may_insert || may_draw) << inserted << ' ' << drawn;
      const bool wants_insert = random.NextBelow(round % 3 == 0 ? 2 : round % 3 == 1 ? 20 : 1) == 0;
      if (may_insert && (wants_insert || !may_draw)) {
        limiter.Inserted(insert);
        inserted += static_cast<double>(insert);
      } else if (may_draw) {
        limiter.Drawn(draw);
        drawn += static_cast<double>(draw);
      }
      const double drift = drawn - rules.draws_per_insert * (inserted - rules.least);
      if (inserted < rules.least) {
        ASSERT_EQ(drawn, 0);
      } else {
        ASSERT_LE(std::abs(drift), rules.slack * (1 + 1e-9));
        ASSERT_NEAR(drift, limiter.drift(), 1e-6 * (1 + drawn));
      }
    }
    EXPECT_GT(drawn, 0);
  }
}

// A memory that is found again goes on as if what it holds had been drawn from as it should.
TEST(RateLimiter, GoesOnWithWhatIsThere) {
  const RateLimiter::Rules rules{.draws_per_insert = 4, .least = 100, .slack = 64};
  RateLimiter fresh(rules), found(rules, 1000);
  EXPECT_FALSE(fresh.MayDraw(1));
  EXPECT_EQ(found.drift(), 0);
  EXPECT_TRUE(found.MayDraw(64));
  EXPECT_FALSE(found.MayDraw(65));
  EXPECT_TRUE(found.MayInsert(16));
  EXPECT_FALSE(found.MayInsert(17));
}

}  // namespace
}  // namespace trireme
