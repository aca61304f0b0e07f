#include "trireme/optim/average.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/simd.h"

namespace trireme {
namespace {

TEST(MoveTowards, FollowsTheFormulaForEverySize) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{101}}) {
    for (const float tau : {0.0f, 0.005f, 0.5f, 1.0f}) {
      std::vector<float> target(size), source(size), expected(size);
      for (std::size_t i = 0; i < size; ++i) {
        target[i] = 1.0f + static_cast<float>(i);
        source[i] = -0.3f * static_cast<float>(i);
        expected[i] = tau * source[i] + (1 - tau) * target[i];
      }
      MoveTowards(target, source, tau);
      EXPECT_EQ(target, expected) << size << " " << tau;
      EXPECT_TRUE(tau != 1 || target == source);
    }
  }
}

TEST(MoveTowards, SameBitsOnEveryInstructionSet) {
  const Isa best = CurrentIsa();
  std::vector<float> source(133), portable(133), fast(133);
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = 1.0f / static_cast<float>(i + 3);
    portable[i] = fast[i] = 0.7f / static_cast<float>(i + 1);
  }
  MoveTowards(fast, source, 0.01f);
  OverrideIsa(Isa::kPortable);
  MoveTowards(portable, source, 0.01f);
  OverrideIsa(best);
  EXPECT_EQ(portable, fast);
}

}  // namespace
}  // namespace trireme
