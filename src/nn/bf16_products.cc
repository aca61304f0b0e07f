#include "trireme/nn/bf16_products.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/nn/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme {
namespace {

// Where there are no numbers: minus zero in A and zero in B, whose product can be added to anything without changing
// it.
constexpr std::uint32_t kNothing = 0x80008000, kNothingInB = 0;

constexpr std::uint32_t kUpper = 0xFFFF0000;

// [depth, width] floats, `ld` from row to row, into panels of [pairs, kPanelRows].
template <bool kRound>
struct PackPanelsKernel {
  TRIREME_INLINE std::uint32_t Upper(float value) {
    return kRound ? std::uint32_t{Bf16::To(value)} << 16 : FloatBits(value) & kUpper;
  }
  TRIREME_INLINE std::uint32_t Lower(float value) {
    return kRound ? std::uint32_t{Bf16::To(value)} : FloatBits(value) >> 16;
  }

  TRIREME_INLINE void Run(const float* from, int depth, int width, int ld, std::uint32_t nothing,
                          std::uint32_t* to) {
    for (int c = 0; c < width; c += kPanelRows) {
      if (width - c >= kPanelRows) {
        Panel<kPanelRows>(from + c, depth, kPanelRows, ld, nothing, to);
      } else {
        Panel<0>(from + c, depth, width - c, ld, nothing, to);
      }
      to += std::ptrdiff_t{PairsOf(depth)} * kPanelRows;
    }
  }

  // kCount: of its rows, or 0 where only `count` says it.
  template <int kCount>
  TRIREME_INLINE void Panel(const float* row, int depth, int count, int ld, std::uint32_t nothing,
                            std::uint32_t* to) {
    if (kCount > 0) count = kCount;
    for (int k = 0; k < depth; k += 2, row += 2 * std::ptrdiff_t{ld}, to += kPanelRows) {
      if (k + 1 < depth) {
        for (int i = 0; i < count; ++i) to[i] = Upper(row[i]) | Lower(row[ld + i]);
      } else {
        for (int i = 0; i < count; ++i) to[i] = Upper(row[i]) | (nothing & ~kUpper);
      }
      for (int i = count; i < kPanelRows; ++i) to[i] = nothing;
    }
  }
};

// The features of each row in pairs.
struct PairFeaturesKernel {
  TRIREME_INLINE void Run(Rows rows, const float* y, std::uint32_t* to, int ld_words) {
    const int whole = rows.width / 2;
    for (int b = 0; b < rows.n; ++b, y += rows.ld, to += ld_words) {
      for (int i = 0; i < whole; ++i) to[i] = (FloatBits(y[2 * i]) & kUpper) | FloatBits(y[2 * i + 1]) >> 16;
      if (rows.width % 2 != 0) to[whole] = (FloatBits(y[rows.width - 1]) & kUpper) | kNothingInB;
    }
  }
};

// From `count` rows of a panel: their upper and their lower halves, in pairs along the rows. [2 count, kPanelRows / 2].
struct PairOtherwiseKernel {
  TRIREME_INLINE void Run(const std::uint32_t* from, int count, std::uint32_t* to) {
    constexpr int kWords = kPanelRows / 2;
    for (int p = 0; p < count; ++p, from += kPanelRows, to += 2 * kWords) {
      for (int i = 0; i < kWords; ++i) {
        to[i] = (from[2 * i] & kUpper) | from[2 * i + 1] >> 16;
        to[kWords + i] = from[2 * i] << 16 | (from[2 * i + 1] & ~kUpper);
      }
    }
  }
};

}  // namespace

void PackWeights(const float* weights, int inputs, int outputs, std::uint32_t* panels) {
  const int block = Gemm::BlockRows(outputs);
  for (int o = 0; o < outputs; o += block) {
    const int outs = std::min(block, outputs - o);
    SimdCall<PackPanelsKernel<true>>(weights + std::ptrdiff_t{o} * inputs, inputs, outs, outs, kNothing,
                                     panels + PanelWords(o, inputs));
  }
}

// 32 outputs and 32 inputs meet in one tile, which is 16 pairs wide in either direction.
void TransposePanels(const std::uint32_t* panels, int rows, int depth, std::uint32_t* to) {
  constexpr int kTile = kPanelRows / 2;
  alignas(64) std::uint32_t tile[kPanelRows * kTile];
  const int pairs = PairsOf(depth), pairs_after = PairsOf(rows);
  for (int p = 0; p < pairs; p += kTile, to += std::ptrdiff_t{pairs_after} * kPanelRows) {
    const int count = std::min(kTile, pairs - p);
    for (int r = 0; r < rows; r += kPanelRows) {
      const std::uint32_t* from = panels + std::ptrdiff_t{r} * pairs + std::ptrdiff_t{p} * kPanelRows;
      SimdCall<PairOtherwiseKernel>(from, count, static_cast<std::uint32_t*>(tile));
      std::fill(tile + std::ptrdiff_t{2 * count} * kTile, std::end(tile), kNothing);
      const int after = std::min(kTile, pairs_after - r / 2);
      if (after == kTile) {
        Transpose(tile, kPanelRows, kTile, to + std::ptrdiff_t{r / 2} * kPanelRows);
      } else {
        alignas(64) std::uint32_t last[kPanelRows * kTile];
        Transpose(tile, kPanelRows, kTile, last);
        std::copy_n(last, after * kPanelRows, to + std::ptrdiff_t{r / 2} * kPanelRows);
      }
    }
  }
}

void PackRows(Rows rows, const float* y, std::uint32_t* to, int ld_words) {
  SimdCall<PairFeaturesKernel>(rows, y, to, ld_words);
}

void PackSamples(PanelsOf which, Rows rows, const float* y, std::uint32_t* panels) {
  const std::uint32_t nothing = which == PanelsOf::kA ? kNothing : kNothingInB;
  SimdCall<PackPanelsKernel<false>>(y, rows.n, rows.width, rows.ld, nothing, panels);
}

#if defined(__x86_64__)

#define TRIREME_BF16 [[gnu::target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")]]

namespace {

// A part of a product: one panel of A, some of the depth, and columns from some point on.
struct Strip {
  int pairs;
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::ptrdiff_t b_words;  // from column to column, or 0: in panels
  float* c;
  std::ptrdiff_t ldc;
  __mmask16 rows[2];  // of the panel that are there
  bool overwrite;
};

// kColumns of 16 or 32 rows stay in registers while the depth passes by.
template <int kVectors, int kColumns, bool kInRows, bool kOverwrite>
TRIREME_BF16 void Tile(const Strip& s) {
  const std::ptrdiff_t step_pair = kInRows ? 1 : kPanelRows, step_column = kInRows ? s.b_words : 1;
  __m512 sum[kColumns][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sum[j][v] =
          kOverwrite ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(s.rows[v], s.c + j * s.ldc + 16 * v);
    }
  }
  const std::uint32_t *a = s.a, *b = s.b;
  for (int p = 0; p < s.pairs; ++p, a += kPanelRows, b += step_pair) {
    __m512bh of_a[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) of_a[v] = (__m512bh)_mm512_loadu_si512(a + 16 * v);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const auto of_b = (__m512bh)_mm512_set1_epi32(static_cast<int>(b[j * step_column]));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[j][v] = _mm512_dpbf16_ps(sum[j][v], of_a[v], of_b);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(s.c + j * s.ldc + 16 * v, s.rows[v], sum[j][v]);
    }
  }
}

template <int kVectors, int kColumns>
void RunVectors(const Strip& s) {
  if (s.b_words == 0) return Tile<kVectors, kColumns, false, false>(s);
  return s.overwrite ? Tile<kVectors, kColumns, true, true>(s) : Tile<kVectors, kColumns, true, false>(s);
}

template <int kColumns>
void RunTile(const Strip& s) {
  return s.rows[1] != 0 ? RunVectors<2, kColumns>(s) : RunVectors<1, kColumns>(s);
}

void RunColumns(int columns, const Strip& s) {
  switch (columns) {
    case 8:
      return RunTile<8>(s);
    case 4:
      return RunTile<4>(s);
    case 2:
      return RunTile<2>(s);
    default:
      return RunTile<1>(s);
  }
}

}  // namespace

void PairProduct::operator()(const std::uint32_t* a, const std::uint32_t* b, float* c) const {
  constexpr int kPairsAtOnce = 128;  // of a panel: they stay in the first-level cache for all columns
  TRIREME_CHECK(b_words > 0 || !overwrite);
  const int pairs = PairsOf(k);
  const std::ptrdiff_t panel = std::ptrdiff_t{pairs} * kPanelRows;
  const bool in_blocks = blocked_c && Gemm::BlockRows(m) < m;
  for (int i = 0; i < m; i += kPanelRows, a += panel) {
    const int rows = std::min(kPanelRows, m - i);
    Strip s{};
    s.b_words = b_words;
    s.ldc = in_blocks ? rows : blocked_c ? m : ldc;
    s.rows[0] = static_cast<__mmask16>(rows >= 16 ? 0xFFFF : (1 << rows) - 1);
    s.rows[1] = static_cast<__mmask16>(rows <= 16 ? 0 : 0xFFFFu >> (32 - rows));
    float* const c_panel = c + (in_blocks ? std::ptrdiff_t{i} * n : i);
    for (int p = 0; p < pairs; p += kPairsAtOnce) {
      s.pairs = std::min(kPairsAtOnce, pairs - p);
      s.a = a + std::ptrdiff_t{p} * kPanelRows;
      s.overwrite = overwrite && p == 0;
      for (int j = 0, columns = 8; j < n; j += columns) {
        while (columns > n - j) columns /= 2;
        s.b = b + (b_words > 0 ? std::ptrdiff_t{j} * b_words + p
                               : j / kPanelRows * panel + std::ptrdiff_t{p} * kPanelRows + j % kPanelRows);
        s.c = c_panel + j * s.ldc;
        RunColumns(columns, s);
      }
    }
  }
}

namespace {

TRIREME_BF16 [[gnu::noinline]] void AddPairs(const std::uint32_t* a, const std::uint32_t* b, float* c) {
  const auto of_a = (__m512bh)_mm512_loadu_si512(a), of_b = (__m512bh)_mm512_loadu_si512(b);
  _mm512_storeu_ps(c, _mm512_dpbf16_ps(_mm512_loadu_ps(c), of_a, of_b));
}

[[gnu::target("fma"), gnu::noinline]] void AddPairsByFma(const std::uint32_t* a, const std::uint32_t* b,
                                                         float* c) {
  for (int i = 0; i < 16; ++i) {
    const float first = __builtin_fmaf(BitsFloat(a[i] & kUpper), BitsFloat(b[i] & kUpper), c[i]);
    c[i] = __builtin_fmaf(BitsFloat(a[i] << 16), BitsFloat(b[i] << 16), first);
  }
}

// Whether the instruction is what bf16_products.h says, on numbers of all sizes, of sizes that meet, and denormal ones.
bool GivesTheBitsOfFma() {
  std::uint64_t state = 1;
  const auto draw = [&](std::uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>((state >> 33) % below);
  };
  const auto number = [&](std::uint32_t exponents, std::uint32_t first) {
    return draw(2) << 31 | (first + draw(exponents)) << 23 | draw(1 << 23);
  };
  const DenormalsAreZero denormals_are_zero;
  for (int round = 0; round < 256; ++round) {
    const bool any = round % 2 == 0;
    const auto pair = [&] {
      return any ? (number(254, 0) & kUpper) | number(254, 0) >> 16
                 : (number(12, 64) & kUpper) | number(12, 64) >> 16;
    };
    std::uint32_t a[16], b[16];
    float by_pairs[16], by_fma[16];
    for (int i = 0; i < 16; ++i) {
      a[i] = pair();
      b[i] = pair();
      by_pairs[i] = by_fma[i] = BitsFloat(any ? number(254, 0) : number(28, 0));
    }
    AddPairs(a, b, by_pairs);
    AddPairsByFma(a, b, by_fma);
    for (int i = 0; i < 16; ++i) {
      const bool both_nan = by_pairs[i] != by_pairs[i] && by_fma[i] != by_fma[i];
      if (!both_nan && FloatBits(by_pairs[i]) != FloatBits(by_fma[i])) return false;
    }
  }
  return true;
}

Products Detect() {
  const char* const wish = std::getenv("TRIREME_PRODUCTS");
  if (wish != nullptr && *wish != '\0') {
    if (wish != std::string_view(NameOf(Products::kFp32)))
      Fail("TRIREME_PRODUCTS={}: set it to fp32, or leave it out for the best there is", wish);
    return Products::kFp32;
  }
  __builtin_cpu_init();
  const bool there = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16");
  return there && GivesTheBitsOfFma() ? Products::kAvx512Bf16 : Products::kFp32;
}

}  // namespace

void DenormalsAreZero::Begin() {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  before_ = _mm_getcsr();
  _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
}
void DenormalsAreZero::End() const { _mm_setcsr(before_); }

#else

void PairProduct::operator()(const std::uint32_t*, const std::uint32_t*, float*) const {
  TRIREME_CHECK(false);
}
namespace {
Products Detect() { return Products::kFp32; }
}  // namespace
void DenormalsAreZero::Begin() {}
void DenormalsAreZero::End() const {}

#endif

namespace {

Products Best() {
  static const Products best = Detect();
  return best;
}
std::optional<Products> overridden;

}  // namespace

const char* NameOf(Products products) { return products == Products::kAvx512Bf16 ? "avx512_bf16" : "fp32"; }

Products CurrentProducts() { return overridden.value_or(Best()); }

void OverrideProducts(Products products) { overridden = std::min(products, Best()); }

bool GainsByPairs(int inputs, int outputs) { return inputs >= 32 && outputs >= 32; }

Products ProductsOf(const NetworkSpec& spec, Precision precision) {
  if (precision != Precision::kBf16) return Products::kFp32;
  for (const TowerSpec& tower : spec.towers) {
    for (std::size_t l = 1; l < tower.hidden.size(); ++l) {
      if (GainsByPairs(tower.hidden[l - 1], tower.hidden[l])) return CurrentProducts();
    }
  }
  return Products::kFp32;
}

}  // namespace trireme
