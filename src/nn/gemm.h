// One small matrix product of fixed shape, ready to be called many times.
//
//   C[M, N] += A[M, K] * op(B)      (or C = ... with overwrite)
//
// Column-major: the M dimension is contiguous, as libxsmm wants it. op(B) is B[K, N], or B[N, K] transposed.
// In this project's terms a matrix [samples, features] with features contiguous is column-major with M =
// features.
//
// libxsmm compiles a kernel for the shape and processor at hand (about 0.1 ms, then cached for the process);
// where it is absent or declines, a portable kernel takes its place. Each element of C is a chain of
// multiply-adds over k in ascending order, whatever N is.
#pragma once

namespace trireme {

class Gemm {
 public:
  struct Shape {
    int m = 0, n = 0, k = 0;
    int lda = 0, ldb = 0, ldc = 0;
    bool transpose_b = false;
    bool overwrite = false;  // C = A*B instead of C += A*B
  };

  Gemm() = default;
  explicit Gemm(const Shape& shape);

  void operator()(const float* a, const float* b, float* c) const {
    if (kernel_ == nullptr) return RunPortable(a, b, c);
    int i = 0;
    for (; i + block_ <= shape_.m; i += block_) kernel_(a + i, b, c + i);
    if (i < shape_.m) remainder_(a + i, b, c + i);
  }

  // Whether products run on generated code. Off in builds without libxsmm and under UsePortableGemm.
  bool generated() const { return kernel_ != nullptr; }

 private:
  using Kernel = void (*)(const float*, const float*, float*, ...);
  void RunPortable(const float* a, const float* b, float* c) const;

  // Tall products run in blocks of 64 rows: one block of A then stays in the first-level cache for all of B.
  static constexpr int kRowsPerBlock = 64;

  Shape shape_;
  int block_ = 0;
  Kernel kernel_ = nullptr;
  Kernel remainder_ = nullptr;  // for the last m % block_ rows
};

// For tests: products made from now on use the portable kernel.
void UsePortableGemm(bool on);

}  // namespace trireme
