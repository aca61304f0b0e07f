#include "nn/gemm.h"

#include <cstddef>

#include "base/simd.h"

#ifdef TRIREME_HAVE_LIBXSMM
#include <libxsmm.h>
#endif

namespace trireme {
namespace {

bool use_portable_gemm = false;

struct PortableGemm {
  // Four columns of C at a time: each column of A is read once for the four.
  [[gnu::always_inline]] static inline void Run(const Gemm::Shape* s, const float* __restrict a,
                                                const float* __restrict b, float* __restrict c) {
    const std::ptrdiff_t step_k = s->transpose_b ? s->ldb : 1;
    const std::ptrdiff_t step_n = s->transpose_b ? 1 : s->ldb;
    int j = 0;
    for (; j + 4 <= s->n; j += 4)
      Columns<4>(*s, a, b + j * step_n, step_k, step_n, c + std::ptrdiff_t{j} * s->ldc);
    for (; j < s->n; ++j) Columns<1>(*s, a, b + j * step_n, step_k, step_n, c + std::ptrdiff_t{j} * s->ldc);
  }

  template <int kColumns>
  [[gnu::always_inline]] static inline void Columns(const Gemm::Shape& s, const float* __restrict a,
                                                    const float* __restrict b, std::ptrdiff_t step_k,
                                                    std::ptrdiff_t step_n, float* __restrict c) {
    constexpr int kRows = 16;
    int i = 0;
    for (; i + kRows <= s.m; i += kRows) Tile<kColumns, kRows>(s, a + i, b, step_k, step_n, c + i);
    for (; i < s.m; ++i) Tile<kColumns, 1>(s, a + i, b, step_k, step_n, c + i);
  }

  template <int kColumns, int kRows>
  [[gnu::always_inline]] static inline void Tile(const Gemm::Shape& s, const float* __restrict a,
                                                 const float* __restrict b, std::ptrdiff_t step_k,
                                                 std::ptrdiff_t step_n, float* __restrict c) {
    float sum[kColumns][kRows];
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < kRows; ++i) sum[j][i] = s.overwrite ? 0.0f : c[std::ptrdiff_t{j} * s.ldc + i];
    }
    for (int k = 0; k < s.k; ++k) {
      for (int j = 0; j < kColumns; ++j) {
        const float scale = b[k * step_k + j * step_n];
        for (int i = 0; i < kRows; ++i) sum[j][i] += a[std::ptrdiff_t{k} * s.lda + i] * scale;
      }
    }
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < kRows; ++i) c[std::ptrdiff_t{j} * s.ldc + i] = sum[j][i];
    }
  }
};

}  // namespace

Gemm::Gemm(const Shape& shape)
    : shape_(shape), block_(shape.m < 2 * kRowsPerBlock ? shape.m : kRowsPerBlock) {
#ifdef TRIREME_HAVE_LIBXSMM
  if (use_portable_gemm) return;
  const auto generate = [&](int rows) {
    const float alpha = 1.0f;
    const float beta = shape.overwrite ? 0.0f : 1.0f;
    const int flags = shape.transpose_b ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
    const int prefetch = LIBXSMM_PREFETCH_NONE;
    return libxsmm_smmdispatch(rows, shape.n, shape.k, &shape.lda, &shape.ldb, &shape.ldc, &alpha, &beta,
                               &flags, &prefetch);
  };
  kernel_ = generate(block_);
  const int rest = shape.m % block_;
  if (kernel_ != nullptr && rest > 0) {
    remainder_ = generate(rest);
    if (remainder_ == nullptr) kernel_ = nullptr;
  }
#endif
}

void Gemm::RunPortable(const float* a, const float* b, float* c) const {
  SimdCall<PortableGemm>(&shape_, a, b, c);
}

void UsePortableGemm(bool on) { use_portable_gemm = on; }

}  // namespace trireme
