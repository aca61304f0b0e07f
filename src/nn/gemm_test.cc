#include "trireme/nn/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// `columns` columns of `rows` random numbers, one every `ld` floats, with NaN between them: a kernel that
// uses the padding spoils its result.
std::vector<float> RandomColumns(int rows, int columns, int ld, std::uint64_t step) {
  RandomStream random(1, Purpose::kTest, 0, step);
  std::vector<float> values(static_cast<std::size_t>(columns - 1) * ld + rows, kNan);
  for (int c = 0; c < columns; ++c) {
    for (int r = 0; r < rows; ++r) values[c * ld + r] = 2 * ToUniform(random.NextBits()) - 1;
  }
  return values;
}

struct Problem {
  Gemm::Shape shape;
  std::vector<float> a, b, c;

  Problem(int m, int n, int k, bool transpose_b, bool overwrite, int padding)
      : shape{.m = m,
              .n = n,
              .k = k,
              .lda = m + padding,
              .ldb = (transpose_b ? n : k) + 2 * padding,
              .ldc = m + 3 * padding,
              .transpose_b = transpose_b,
              .overwrite = overwrite},
        a(RandomColumns(m, k, shape.lda, 1)),
        b(transpose_b ? RandomColumns(n, k, shape.ldb, 2) : RandomColumns(k, n, shape.ldb, 2)),
        c(RandomColumns(m, n, shape.ldc, 3)) {
    // What C held must not matter when it is overwritten.
    if (overwrite) std::fill(c.begin(), c.end(), kNan);
  }

  std::vector<float> Run(bool portable) const {
    UsePortableGemm(portable);
    const Gemm gemm(shape);
    UsePortableGemm(false);
    EXPECT_FALSE(portable && gemm.generated());
    std::vector<float> result = c;
    gemm(a.data(), b.data(), result.data());
    return result;
  }

  // The worst error of `result` in units of the rounding error that k float additions may make.
  double Error(const std::vector<float>& result) const {
    double worst = 0;
    std::vector<double> sum(shape.m), magnitude(shape.m);
    for (int j = 0; j < shape.n; ++j) {
      for (int i = 0; i < shape.m; ++i) {
        sum[i] = shape.overwrite ? 0.0 : c[j * shape.ldc + i];
        magnitude[i] = std::fabs(sum[i]);
      }
      for (int p = 0; p < shape.k; ++p) {
        const double scale = shape.transpose_b ? b[p * shape.ldb + j] : b[j * shape.ldb + p];
        for (int i = 0; i < shape.m; ++i) {
          const double term = a[p * shape.lda + i] * scale;
          sum[i] += term;
          magnitude[i] += std::fabs(term);
        }
      }
      for (int i = 0; i < shape.m; ++i) {
        const double error =
            std::fabs(result[j * shape.ldc + i] - sum[i]) / ((shape.k + 1) * 0x1p-24 * magnitude[i]);
        if (std::isnan(error)) return error;
        worst = std::max(worst, error);
      }
    }
    return worst;
  }

  bool PaddingUntouched(const std::vector<float>& result) const {
    for (std::size_t at = 0; at < result.size(); ++at) {
      if (static_cast<int>(at % shape.ldc) >= shape.m && !std::isnan(result[at])) return false;
    }
    return true;
  }
};

constexpr int kRows[] = {1, 2, 7, 64, 65, 130, 256};

void CheckAllShapes(bool portable) {
  for (const int m : kRows) {
    for (int n = 1; n <= 130; n += portable && n > 20 ? 5 : 1) {
      const int k = 1 + (n * 37 + m) % 70;
      // All four kinds of product for some shapes, one of them for the others.
      for (int kind = 0; kind < 4; ++kind) {
        if (n > 9 && kind != (n + m) % 4) continue;
        const Problem problem(m, n, k, kind % 2 == 1, kind / 2 == 1, n % 3 == 0 ? 5 : 0);
        const std::vector<float> result = problem.Run(portable);
        ASSERT_LE(problem.Error(result), 1.0) << "m " << m << " n " << n << " k " << k << " kind " << kind;
        ASSERT_TRUE(problem.PaddingUntouched(result)) << "m " << m << " n " << n << " k " << k;
      }
    }
  }
}

TEST(GemmTest, DefaultKernelMatchesDoublePrecision) { CheckAllShapes(false); }

TEST(GemmTest, PortableKernelMatchesDoublePrecisionOnEveryInstructionSet) {
  const Isa best = CurrentIsa();
  for (const Isa isa : {Isa::kPortable, best}) {
    OverrideIsa(isa);
    CheckAllShapes(true);
  }
  OverrideIsa(best);
}

TEST(GemmTest, EveryDepthUpToSeventy) {
  for (int k = 1; k <= 70; ++k) {
    for (const bool transpose_b : {false, true}) {
      for (const bool overwrite : {false, true}) {
        const Problem problem(24, 6, k, transpose_b, overwrite, 3);
        EXPECT_LE(problem.Error(problem.Run(false)), 1.0) << "k " << k << " transposed " << transpose_b;
        EXPECT_LE(problem.Error(problem.Run(true)), 1.0) << "k " << k << " transposed " << transpose_b;
      }
    }
  }
}

TEST(GemmTest, AColumnDoesNotDependOnHowManyThereAre) {
  for (const bool portable : {false, true}) {
    for (const int m : {1, 2, 7, 15, 16, 17, 31, 64, 65, 130}) {
      for (const int k : {1, 4, 17, 64}) {
        const Problem all(m, 130, k, false, true, 0);
        const std::vector<float> expected = all.Run(portable);
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 63, 64, 65, 127, 128}) {
          Problem some = all;
          some.shape.n = n;
          some.c.assign(static_cast<std::size_t>(n) * m, 0.0f);
          const std::vector<float> actual = some.Run(portable);
          ASSERT_EQ(0, std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)))
              << "portable " << portable << " m " << m << " k " << k << " n " << n;
        }
      }
    }
  }
}

TEST(GemmTest, RepeatedCallsAccumulate) {
  const Problem problem(70, 9, 12, true, false, 2);
  const Gemm gemm(problem.shape);
  std::vector<float> result = problem.c;
  for (int call = 0; call < 3; ++call) gemm(problem.a.data(), problem.b.data(), result.data());
  // Three products are one over matrices three times as deep.
  Problem deep = problem;
  deep.shape.k *= 3;
  deep.a.resize(problem.shape.lda * problem.shape.k, kNan);
  deep.b.resize(problem.shape.ldb * problem.shape.k, kNan);
  const std::vector<float> a = deep.a, b = deep.b;
  for (int copy = 0; copy < 2; ++copy) {
    deep.a.insert(deep.a.end(), a.begin(), a.end());
    deep.b.insert(deep.b.end(), b.begin(), b.end());
  }
  EXPECT_LE(deep.Error(result), 1.0);
}

// [rows, columns] with rows contiguous, stored in blocks of rows as gemm.h describes.
std::vector<float> ToBlocked(const std::vector<float>& plain, int rows, int columns) {
  std::vector<float> blocked;
  for (int first = 0; first < rows; first += Gemm::BlockRows(rows)) {
    const int last = std::min(rows, first + Gemm::BlockRows(rows));
    for (int c = 0; c < columns; ++c) {
      blocked.insert(blocked.end(), plain.begin() + c * rows + first, plain.begin() + c * rows + last);
    }
  }
  return blocked;
}

TEST(GemmTest, BlockedStorageGivesTheSameBits) {
  for (const bool portable : {false, true}) {
    for (const int m : {5, 64, 127, 128, 130, 256, 300}) {
      for (const bool transpose_b : {false, true}) {
        const Problem plain(m, 30, 40, transpose_b, false, 0);
        Problem blocked = plain;
        blocked.shape.blocked_a = blocked.shape.blocked_c = true;
        blocked.shape.lda = blocked.shape.ldc = 0;
        blocked.a = ToBlocked(plain.a, m, 40);
        blocked.c = ToBlocked(plain.c, m, 30);
        EXPECT_EQ(blocked.Run(portable), ToBlocked(plain.Run(portable), m, 30))
            << m << (portable ? " portable" : "");
      }
    }
  }
}

}  // namespace
}  // namespace trireme
