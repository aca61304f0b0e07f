// One small matrix product of fixed shape, ready to be called many times.
//
//   C[M, N] += A[M, K] * op(B)      (or C = ... with overwrite)
//
// Column-major: the M dimension is contiguous, as libxsmm wants it. op(B) is B[K, N], or B[N, K] transposed.
// In this project's terms a matrix [samples, features] with features contiguous is column-major with M =
// features.
//
// Tall products run in blocks of kRowsPerBlock rows. A and C may be stored that way, too ("blocked"): one
// block after the other, each contiguous, [K, rows of the block] for A and [N, rows of the block] for C. A
// blocked matrix is read in one stream where a plain one is read in strides of its whole height.
//
// libxsmm compiles a kernel for the shape and processor at hand (about 0.1 ms, then cached for the process);
// where it is absent or declines, a portable kernel takes its place. Each element of C is a chain of
// multiply-adds over k in ascending order, whatever N is.
#pragma once

#include <cstddef>

namespace trireme {

class Gemm {
 public:
  static constexpr int kRowsPerBlock = 32;
  // Rows of one block of an m-row matrix. One block of A should fit the first-level cache beside what it
  // meets; matrices of up to two blocks do as a whole.
  static constexpr int BlockRows(int m) { return m <= 2 * kRowsPerBlock ? m : kRowsPerBlock; }

  struct Shape {
    int m = 0, n = 0, k = 0;
    int lda = 0, ldb = 0, ldc = 0;  // lda and ldc are not read where blocked
    bool blocked_a = false;
    bool blocked_c = false;
    bool transpose_b = false;
    bool overwrite = false;  // C = A*B instead of C += A*B
  };

  Gemm() = default;
  explicit Gemm(const Shape& shape);

  void operator()(const float* a, const float* b, float* c) const {
    if (kernel_ == nullptr) return RunPortable(a, b, c);
    int i = 0;
    for (; i + block_ <= shape_.m; i += block_) kernel_(a + i * a_step_, b, c + i * c_step_);
    if (i < shape_.m) remainder_(a + i * a_step_, b, c + i * c_step_);
  }

  // Whether products run on generated code. Off in builds without libxsmm and under UsePortableGemm.
  bool generated() const { return kernel_ != nullptr; }

 private:
  using Kernel = void (*)(const float*, const float*, float*, ...);
  void RunPortable(const float* a, const float* b, float* c) const;
  // The product of `rows` rows of this one, as a product of its own.
  Shape BlockShape(int rows) const;

  Shape shape_;
  int block_ = 0;
  std::ptrdiff_t a_step_ = 1, c_step_ = 1;  // floats from one row to the next, across blocks
  Kernel kernel_ = nullptr;
  Kernel remainder_ = nullptr;  // for the last m % block_ rows
};

// For tests: products made from now on use the portable kernel.
void UsePortableGemm(bool on);

}  // namespace trireme
