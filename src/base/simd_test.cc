#include "trireme/base/simd.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {
namespace {

struct HashWords {
  [[gnu::always_inline]] static inline std::uint32_t Run(std::uint32_t* x, std::size_t n,
                                                         std::uint32_t salt) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = (x[i] ^ salt) * 2654435761u + (x[i] >> 7);
      sum += x[i];
    }
    return sum;
  }
};

class SimdTest : public testing::Test {
 protected:
  ~SimdTest() override { OverrideIsa(best); }
  const Isa best = CurrentIsa();
};

TEST_F(SimdTest, EveryInstructionSetGivesTheSameIntegers) {
  for (const std::size_t size : {0u, 1u, 7u, 16u, 33u, 1000u}) {
    std::vector<std::uint32_t> input(size);
    for (std::size_t i = 0; i < size; ++i) input[i] = static_cast<std::uint32_t>(i * i + 3);
    std::vector<std::uint32_t> expected = input;
    const std::uint32_t expected_sum = HashWords::Run(expected.data(), size, 99);
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      OverrideIsa(isa);
      std::vector<std::uint32_t> actual = input;
      EXPECT_EQ(SimdCall<HashWords>(actual.data(), size, 99u), expected_sum) << IsaName(CurrentIsa());
      EXPECT_EQ(actual, expected) << IsaName(CurrentIsa());
    }
  }
}

TEST_F(SimdTest, OverrideIsClampedToTheProcessor) {
  OverrideIsa(Isa::kAvx512);
  EXPECT_EQ(CurrentIsa(), best);
  OverrideIsa(Isa::kPortable);
  EXPECT_EQ(CurrentIsa(), Isa::kPortable);
  OverrideIsa(Isa::kAvx512);
  EXPECT_EQ(CurrentIsa(), best);
}

TEST_F(SimdTest, Names) {
  EXPECT_EQ(std::string(IsaName(Isa::kPortable)), "portable");
  EXPECT_EQ(std::string(IsaName(Isa::kAvx2)), "avx2");
  EXPECT_EQ(std::string(IsaName(Isa::kAvx512)), "avx512");
}

}  // namespace
}  // namespace trireme
