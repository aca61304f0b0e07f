// Matrix products of bf16 numbers, summed in 32 bits, on processors with an instruction for them (AVX512-BF16: two
// products and their sums in each lane).
//
//   C[M, N] += A[M, K] * B[K, N]      (or C = ... with overwrite)
//
// as Gemm (gemm.h) has it: M is contiguous in C. Numbers that follow each other along K are a pair, one word of 32
// bits with the first in its upper half; where K is odd the last has nothing beside it.
//
//   panels   of A, and of B where K is samples: kPanelRows rows of M together, [pairs of K, kPanelRows] words; panels
//            follow one another, what is missing in the last is filled up
//   rows     of B where K is features: [N, pairs of K] words
//
// The instruction multiplies and adds like two fused multiply-adds, the upper half first, so each element of C is the
// chain over k in ascending order that Gemm computes of the same numbers: the same bits, but that numbers below
// 2^-126 (denormal ones), given or found, are zero. DenormalsAreZero makes Gemm do that, too. A processor whose
// instruction gives other bits is not asked to use it: see CurrentProducts.
//
// All functions are allocation-free and may be called from any thread on distinct outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/half.h"
#include "trireme/nn/dense_kernels.h"
#include "trireme/nn/spec.h"

namespace trireme {

// What multiplies numbers of bf16.
enum class Products { kFp32, kAvx512Bf16 };
const char* NameOf(Products products);

// The best that this processor has and that a short check at the first call finds to give the bits of kFp32, unless
// overridden. The environment variable TRIREME_PRODUCTS=fp32 does without.
Products CurrentProducts();
// For tests and benchmarks; not thread safe. Asking for more than there is is clamped. Counts for workspaces made from
// now on.
void OverrideProducts(Products products);

// Whether a layer's products are faster so: those of layers narrower than 32 hardly are (docs/precision.md).
bool GainsByPairs(int inputs, int outputs);
// What a network of this precision is multiplied with here: kFp32 unless one of its layers gains.
Products ProductsOf(const NetworkSpec& spec, Precision precision);

// While there is one, denormal numbers are zero in this thread's arithmetic, given or found.
class DenormalsAreZero {
 public:
  explicit DenormalsAreZero(bool on = true) : on_(on) {
    if (on_) Begin();
  }
  ~DenormalsAreZero() {
    if (on_) End();
  }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  void Begin();
  void End() const;

  bool on_;
  unsigned before_ = 0;
};

inline constexpr int kPanelRows = 32;
constexpr int PairsOf(int depth) { return (depth + 1) / 2; }
// Words of all panels of a matrix [rows, depth].
constexpr std::size_t PanelWords(int rows, int depth) {
  return static_cast<std::size_t>((rows + kPanelRows - 1) / kPanelRows) * kPanelRows * PairsOf(depth);
}

// The weights of a hidden layer, stored as Tower does (blocked: Gemm::BlockRows), rounded to bf16, as A: M outputs and
// K inputs.
void PackWeights(const float* weights, int inputs, int outputs, std::uint32_t* panels);
// Panels of A [rows, depth] become those of its transpose, [depth, rows].
void TransposePanels(const std::uint32_t* panels, int rows, int depth, std::uint32_t* to);

// Activations and gradients, which are bf16 numbers already. Rows of features, `ld_words` words from one to the next;
// and panels with K the samples, which are M x K of A or N x K of B.
void PackRows(Rows rows, const float* y, std::uint32_t* to, int ld_words);
enum class PanelsOf { kA, kB };
void PackSamples(PanelsOf which, Rows rows, const float* y, std::uint32_t* panels);

// One product. C is [N, M] with `ldc` floats from column to column, or blocked as Gemm's.
struct PairProduct {
  int m = 0, n = 0, k = 0;
  int b_words = 0;  // B in rows: words from one to the next; 0: B in panels
  int ldc = 0;      // not read where blocked
  bool blocked_c = false;
  bool overwrite = false;  // with B in rows only

  // Requires a processor with these products.
  void operator()(const std::uint32_t* a, const std::uint32_t* b, float* c) const;
};

}  // namespace trireme
