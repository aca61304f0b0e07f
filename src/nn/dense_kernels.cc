#include "trireme/nn/dense_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"
#include "trireme/nn/gemm.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

// Calls Kernel<activation> for an activation known only at run time.
template <template <Activation> class Kernel, class... Args>
void CallFor(Activation activation, Args... args) {
  switch (activation) {
    case Activation::kTanh:
      return SimdCall<Kernel<Activation::kTanh>>(args...);
    case Activation::kRelu:
      return SimdCall<Kernel<Activation::kRelu>>(args...);
    case Activation::kElu:
      return SimdCall<Kernel<Activation::kElu>>(args...);
    case Activation::kSilu:
      return SimdCall<Kernel<Activation::kSilu>>(args...);
  }
}

// f'(z) from y = f(z), or from the saved slope.
template <Activation kActivation, class T>
[[gnu::always_inline]] inline T Slope(const T& y, const T& saved) {
  if constexpr (kActivation == Activation::kTanh) {
    return 1.0f - y * y;
  } else if constexpr (kActivation == Activation::kRelu) {
    return y > 0.0f ? T{} + 1.0f : T{};
  } else if constexpr (kActivation == Activation::kElu) {
    return y > 0.0f ? T{} + 1.0f : y + 1.0f;
  } else {
    return saved;
  }
}

template <Activation kActivation>
struct BiasActivateKernel {
  template <class T>
  TRIREME_INLINE void Vector(const T& bias, float* y, float* slope) {
    const T z = LoadAs<T>(y) + bias;
    if constexpr (kActivation == Activation::kTanh) {
      Store(y, FastTanh(z));
    } else if constexpr (kActivation == Activation::kRelu) {
      Store(y, z < 0.0f ? T{} : z);
    } else if constexpr (kActivation == Activation::kElu) {
      Store(y, z > 0.0f ? z : FastExp(z) - 1.0f);
    } else {
      const T sigmoid = 1.0f / (1.0f + FastExp(-z));
      Store(y, z * sigmoid);
      Store(slope, sigmoid + z * sigmoid * (1.0f - sigmoid));
    }
  }

  template <class T, int kVectors>
  TRIREME_INLINE void Block(Rows rows, const float* bias, float* y, float* slope) {
    constexpr int kLanes = LanesOf<T>();
    T held[kVectors];
    for (int v = 0; v < kVectors; ++v) held[v] = LoadAs<T>(bias + v * kLanes);
    for (int b = 0; b < rows.n; ++b) {
      for (int v = 0; v < kVectors; ++v) {
        const std::ptrdiff_t at = std::ptrdiff_t{b} * rows.ld + v * kLanes;
        Vector<T>(held[v], y + at, slope + at);
      }
    }
  }

  TRIREME_INLINE void Run(Rows rows, const float* bias, float* y, float* slope) {
    int i = 0;
    for (; i + 16 <= rows.width; i += 16) Block<Vec8, 2>(rows, bias + i, y + i, slope + i);
    for (; i + 8 <= rows.width; i += 8) Block<Vec8, 1>(rows, bias + i, y + i, slope + i);
    for (; i < rows.width; ++i) Block<float, 1>(rows, bias + i, y + i, slope + i);
  }
};

template <Activation kActivation>
struct ActivationBackwardKernel {
  template <class T, int kVectors>
  TRIREME_INLINE void Block(Rows rows, const float* y, const float* slope, float* dz, float* dbias) {
    constexpr int kLanes = LanesOf<T>();
    T sum[kVectors] = {};
    for (int b = 0; b < rows.n; ++b) {
      for (int v = 0; v < kVectors; ++v) {
        const std::ptrdiff_t at = std::ptrdiff_t{b} * rows.ld + v * kLanes;
        T saved{};
        if constexpr (kActivation == Activation::kSilu) saved = LoadAs<T>(slope + at);
        const T d = LoadAs<T>(dz + at) * Slope<kActivation>(LoadAs<T>(y + at), saved);
        Store(dz + at, d);
        sum[v] += d;
      }
    }
    for (int v = 0; v < kVectors; ++v) Store(dbias + v * kLanes, LoadAs<T>(dbias + v * kLanes) + sum[v]);
  }

  TRIREME_INLINE void Run(Rows rows, const float* y, const float* slope, float* dz, float* dbias) {
    int i = 0;
    for (; i + 32 <= rows.width; i += 32) Block<Vec8, 4>(rows, y + i, slope + i, dz + i, dbias + i);
    for (; i + 8 <= rows.width; i += 8) Block<Vec8, 1>(rows, y + i, slope + i, dz + i, dbias + i);
    for (; i < rows.width; ++i) Block<float, 1>(rows, y + i, slope + i, dz + i, dbias + i);
  }
};

struct HeadForwardKernel {
  TRIREME_INLINE void Run(Rows rows, const float* y, int outputs, const float* w, const float* bias,
                          float* out) {
    int b = 0;
    for (; b + 4 <= rows.n; b += 4)
      Samples<4>(rows, y + std::ptrdiff_t{b} * rows.ld, outputs, w, bias, out + b * outputs);
    for (; b < rows.n; ++b)
      Samples<1>(rows, y + std::ptrdiff_t{b} * rows.ld, outputs, w, bias, out + b * outputs);
  }

  // Four samples share each load of the weights and the final sum over lanes.
  template <int kSamples>
  TRIREME_INLINE void Samples(Rows rows, const float* y, int outputs, const float* w, const float* bias,
                              float* out) {
    for (int o = 0; o < outputs; ++o, w += rows.width) {
      Vec8 sum[4] = {};
      int i = 0;
      for (; i + 8 <= rows.width; i += 8) {
        const Vec8 weights = LoadAs<Vec8>(w + i);
        for (int s = 0; s < kSamples; ++s)
          sum[s] += weights * LoadAs<Vec8>(y + std::ptrdiff_t{s} * rows.ld + i);
      }
      const Vec4 total = SumLanes(sum[0], sum[1], sum[2], sum[3]);
      for (int s = 0; s < kSamples; ++s) {
        float value = total[s] + bias[o];
        for (int j = i; j < rows.width; ++j) value += w[j] * y[std::ptrdiff_t{s} * rows.ld + j];
        out[s * outputs + o] = value;
      }
    }
  }
};

// What HeadBackward does for `kOutputs` of the outputs. Heads wider than eight take several rounds: dz
// collects sum_o dout w over the rounds, and only the last one multiplies by the slope.
struct HeadRound {
  Rows rows;
  const float* y;
  const float* slope;
  int outputs;     // floats from one sample's dout to the next
  const float* w;  // [kOutputs, width]
  const float* dout;
  float* dw;  // [kOutputs, width]
  float* dz;
  float* dbias_below;
  bool first;
  bool last;
};

template <Activation kActivation>
struct HeadBackwardKernel {
  template <int kOutputs, class T, int kVectors>
  TRIREME_INLINE void Block(const HeadRound& r, int i) {
    constexpr int kLanes = LanesOf<T>();
    T w[kOutputs][kVectors], dw[kOutputs][kVectors] = {}, below[kVectors] = {};
    for (int o = 0; o < kOutputs; ++o) {
      for (int v = 0; v < kVectors; ++v) w[o][v] = LoadAs<T>(r.w + o * r.rows.width + i + v * kLanes);
    }
    for (int b = 0; b < r.rows.n; ++b) {
      const float* dout = r.dout + b * r.outputs;
      for (int v = 0; v < kVectors; ++v) {
        const std::ptrdiff_t at = std::ptrdiff_t{b} * r.rows.ld + i + v * kLanes;
        const T y = LoadAs<T>(r.y + at);
        T d = r.first ? T{} : LoadAs<T>(r.dz + at);
        for (int o = 0; o < kOutputs; ++o) {
          d += w[o][v] * dout[o];
          dw[o][v] += y * dout[o];
        }
        if (r.last) {
          T saved{};
          if constexpr (kActivation == Activation::kSilu) saved = LoadAs<T>(r.slope + at);
          d *= Slope<kActivation>(y, saved);
          below[v] += d;
        }
        Store(r.dz + at, d);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int o = 0; o < kOutputs; ++o) {
        float* to = r.dw + o * r.rows.width + i + v * kLanes;
        Store(to, LoadAs<T>(to) + dw[o][v]);
      }
      float* to = r.dbias_below + i + v * kLanes;
      if (r.last) Store(to, LoadAs<T>(to) + below[v]);
    }
  }

  template <int kOutputs>
  TRIREME_INLINE void Round(const HeadRound& r) {
    constexpr int kVectors = kOutputs <= 2 ? 2 : 1;
    int i = 0;
    for (; i + 8 * kVectors <= r.rows.width; i += 8 * kVectors) Block<kOutputs, Vec8, kVectors>(r, i);
    for (; i < r.rows.width; ++i) Block<kOutputs, float, 1>(r, i);
  }

  TRIREME_INLINE void Run(const HeadRound* r, int outputs_in_round) {
    switch (outputs_in_round) {
      case 1:
        return Round<1>(*r);
      case 2:
        return Round<2>(*r);
      case 3:
        return Round<3>(*r);
      case 4:
        return Round<4>(*r);
      case 5:
        return Round<5>(*r);
      case 6:
        return Round<6>(*r);
      case 7:
        return Round<7>(*r);
      default:
        return Round<8>(*r);
    }
  }
};

// T: float, or words of the same size.
template <class T>
struct TransposeKernel {
  typedef T Vec __attribute__((vector_size(32)));

  TRIREME_INLINE void Run(const T* from, int rows, int columns, T* to) {
    int r = 0;
    for (; r + 8 <= rows; r += 8) {
      int c = 0;
      for (; c + 8 <= columns; c += 8) {
        Tile(from + std::ptrdiff_t{r} * columns + c, columns, to + std::ptrdiff_t{c} * rows + r, rows);
      }
      Scalar(from, rows, columns, to, r, r + 8, c);
    }
    Scalar(from, rows, columns, to, r, rows, 0);
  }

  TRIREME_INLINE void Scalar(const T* from, int rows, int columns, T* to, int r0, int r1, int c0) {
    for (int r = r0; r < r1; ++r) {
      for (int c = c0; c < columns; ++c)
        to[std::ptrdiff_t{c} * rows + r] = from[std::ptrdiff_t{r} * columns + c];
    }
  }

  // 8x8 in registers: pairs of rows, then pairs of pairs, then halves.
  TRIREME_INLINE void Tile(const T* from, int ld_from, T* to, int ld_to) {
    Vec a[8], b[8];
    for (int i = 0; i < 8; ++i) std::memcpy(&a[i], from + std::ptrdiff_t{i} * ld_from, sizeof(Vec));
    for (int i = 0; i < 8; i += 2) {
      b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
      a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      a[i + 2] = __builtin_shufflevector(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 3] = __builtin_shufflevector(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; ++i) {
      const Vec low = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
      const Vec high = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
      std::memcpy(to + std::ptrdiff_t{i} * ld_to, &low, sizeof(Vec));
      std::memcpy(to + std::ptrdiff_t{i + 4} * ld_to, &high, sizeof(Vec));
    }
  }
};

}  // namespace

void BiasActivate(Activation activation, Rows rows, const float* bias, float* y, float* slope) {
  TRIREME_CHECK(!NeedsSlope(activation) || slope != nullptr);
  CallFor<BiasActivateKernel>(activation, rows, bias, y, NeedsSlope(activation) ? slope : y);
}

void ActivationBackward(Activation activation, Rows rows, const float* y, const float* slope, float* dz,
                        float* dbias) {
  TRIREME_CHECK(!NeedsSlope(activation) || slope != nullptr);
  CallFor<ActivationBackwardKernel>(activation, rows, y, NeedsSlope(activation) ? slope : y, dz, dbias);
}

void HeadForward(Rows rows, const float* y, int outputs, const float* w, const float* bias, float* out) {
  SimdCall<HeadForwardKernel>(rows, y, outputs, w, bias, out);
}

void HeadBackward(Activation activation, Rows rows, const float* y, const float* slope, int outputs,
                  const float* w, const float* dout, float* dw, float* dbias, float* dz, float* dbias_below) {
  for (int o = 0; o < outputs; ++o) {
    float sum = 0;
    for (int b = 0; b < rows.n; ++b) sum += dout[b * outputs + o];
    dbias[o] += sum;
  }
  constexpr int kMostInRound = 8;
  for (int o = 0; o < outputs; o += kMostInRound) {
    const int count = std::min(kMostInRound, outputs - o);
    const HeadRound round{.rows = rows,
                          .y = y,
                          .slope = slope,
                          .outputs = outputs,
                          .w = w + std::ptrdiff_t{o} * rows.width,
                          .dout = dout + o,
                          .dw = dw + std::ptrdiff_t{o} * rows.width,
                          .dz = dz,
                          .dbias_below = dbias_below,
                          .first = o == 0,
                          .last = o + count == outputs};
    CallFor<HeadBackwardKernel>(activation, &round, count);
  }
}

void Transpose(const float* from, int rows, int columns, float* to) {
  SimdCall<TransposeKernel<float>>(from, rows, columns, to);
}

void Transpose(const std::uint32_t* from, int rows, int columns, std::uint32_t* to) {
  SimdCall<TransposeKernel<std::uint32_t>>(from, rows, columns, to);
}

// Each pair of blocks meets in one dense tile.
void TransposeBlocked(const float* weights, int inputs, int outputs, float* to) {
  const int out_block = Gemm::BlockRows(outputs), in_block = Gemm::BlockRows(inputs);
  for (int o = 0; o < outputs; o += out_block) {
    const int outs = std::min(out_block, outputs - o);
    for (int i = 0; i < inputs; i += in_block) {
      const int ins = std::min(in_block, inputs - i);
      Transpose(weights + std::size_t(o) * inputs + std::size_t(i) * outs, ins, outs,
                to + std::size_t(i) * outputs + std::size_t(o) * ins);
    }
  }
}

}  // namespace trireme
