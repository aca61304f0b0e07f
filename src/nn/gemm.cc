#include "trireme/nn/gemm.h"

#include <algorithm>
#include <cstddef>

#include "trireme/base/simd.h"

#ifdef TRIREME_HAVE_LIBXSMM
#include <libxsmm.h>
#endif

namespace trireme {
namespace {

bool use_portable_gemm = false;

// `kFused`: multiplies and adds with one rounding, as generated code does, however this is optimised. For
// instruction sets that can.
template <bool kFused>
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
        for (int i = 0; i < kRows; ++i) {
          const float value = a[std::ptrdiff_t{k} * s.lda + i];
          sum[j][i] = kFused ? __builtin_fmaf(value, scale, sum[j][i]) : sum[j][i] + value * scale;
        }
      }
    }
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < kRows; ++i) c[std::ptrdiff_t{j} * s.ldc + i] = sum[j][i];
    }
  }
};

#ifdef TRIREME_HAVE_LIBXSMM
// Where one vector holds all rows and there are few columns, what libxsmm generates for AVX-512 hides
// latencies by adding the products of one element in several chains: other bits than in a product with more
// columns.
bool AddsInSeveralChains(int rows, int columns) {
  return libxsmm_get_target_archid() >= LIBXSMM_X86_AVX512 && rows <= 16 && columns <= 11;
}
#endif

}  // namespace

Gemm::Gemm(const Shape& shape)
    : shape_(shape),
      block_(BlockRows(shape.m)),
      a_step_(shape.blocked_a ? shape.k : 1),
      c_step_(shape.blocked_c ? shape.n : 1) {
#ifdef TRIREME_HAVE_LIBXSMM
  if (use_portable_gemm) return;
  const auto generate = [&](int rows) -> Kernel {
    if (AddsInSeveralChains(rows, shape.n)) return nullptr;
    const Shape s = BlockShape(rows);
    const float alpha = 1.0f;
    const float beta = s.overwrite ? 0.0f : 1.0f;
    const int flags = s.transpose_b ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
    const int prefetch = LIBXSMM_PREFETCH_NONE;
    return libxsmm_smmdispatch(s.m, s.n, s.k, &s.lda, &s.ldb, &s.ldc, &alpha, &beta, &flags, &prefetch);
  };
  kernel_ = generate(block_);
  const int rest = shape.m % block_;
  if (kernel_ != nullptr && rest > 0) {
    remainder_ = generate(rest);
    if (remainder_ == nullptr) kernel_ = nullptr;
  }
#endif
}

Gemm::Shape Gemm::BlockShape(int rows) const {
  Shape s = shape_;
  s.m = rows;
  if (s.blocked_a) s.lda = rows;
  if (s.blocked_c) s.ldc = rows;
  return s;
}

void Gemm::RunPortable(const float* a, const float* b, float* c) const {
  for (int i = 0; i < shape_.m; i += block_) {
    const Shape s = BlockShape(std::min(block_, shape_.m - i));
    if (CurrentIsa() == Isa::kPortable) {
      SimdCall<PortableGemm<false>>(&s, a + i * a_step_, b, c + i * c_step_);
    } else {
      SimdCall<PortableGemm<true>>(&s, a + i * a_step_, b, c + i * c_step_);
    }
  }
}

void UsePortableGemm(bool on) { use_portable_gemm = on; }

}  // namespace trireme
