// The passes around the matrix products of a tower: bias and activation, their derivatives, the narrow last
// layer, and the transposition of weights. Each runs over one chunk of samples that sits in the first-level
// cache.
//
// A matrix of activations is [n, width] with a row every `ld` floats. All functions are allocation-free and
// may be called from any thread on distinct outputs.
#pragma once

#include <cstdint>

#include "trireme/nn/spec.h"

namespace trireme {

// One chunk of a layer's activations.
struct Rows {
  int n = 0;
  int width = 0;
  int ld = 0;
};

// y = f(y + bias) in place. `slope` receives f'(.) for the activations whose slope cannot be had from y
// (silu); it has the same rows as y and may be null otherwise.
void BiasActivate(Activation activation, Rows rows, const float* bias, float* y, float* slope);

// dz = da * f'(z) in place, and dbias += column sums of dz.
void ActivationBackward(Activation activation, Rows rows, const float* y, const float* slope, float* dz,
                        float* dbias);

// The last layer, linear and usually one to eight outputs wide: too narrow for a matrix product, so its
// weights are stored [outputs, width] and it runs as dot products.
//   out[b, o] = bias[o] + sum_i w[o, i] y[b, i]
void HeadForward(Rows rows, const float* y, int outputs, const float* w, const float* bias, float* out);

// Everything the last layer contributes to the backward pass, in one sweep over y:
//   dw[o, i] += sum_b dout[b, o] y[b, i]     dbias[o] += sum_b dout[b, o]
//   dz[b, i]  = f'(z[b, i]) sum_o dout[b, o] w[o, i]     dbias_below[i] += sum_b dz[b, i]
void HeadBackward(Activation activation, Rows rows, const float* y, const float* slope, int outputs,
                  const float* w, const float* dout, float* dw, float* dbias, float* dz, float* dbias_below);

// to[c, r] = from[r, c] for a dense [rows, columns] matrix.
void Transpose(const float* from, int rows, int columns, float* to);
void Transpose(const std::uint32_t* from, int rows, int columns, std::uint32_t* to);

// The transpose of a hidden layer's weights. Both are blocked (Gemm::BlockRows): W in blocks of outputs, [inputs, outputs
// of the block], the transpose in blocks of inputs, [outputs, inputs of the block].
void TransposeBlocked(const float* weights, int inputs, int outputs, float* to);

// Whether `activation` needs the slope buffer.
inline bool NeedsSlope(Activation activation) { return activation == Activation::kSilu; }

}  // namespace trireme
