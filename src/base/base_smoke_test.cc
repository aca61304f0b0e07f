#include <gtest/gtest.h>
#include "base/aligned.h"
#include "base/rng.h"
#include "base/simd.h"
namespace trireme { namespace {
// Known-answer vectors published with the Random123 library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, {~0u, ~0u, ~0u, ~0u}), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}
} }
