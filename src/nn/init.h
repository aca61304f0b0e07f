// Initial weights of a layer.
//   orthogonal  gain * Q with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014)
//   kaiming     uniform on +-gain * sqrt(3 / inputs) (He et al. 2015)
//   xavier      uniform on +-gain * sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)
// Biases start at zero.
#pragma once

#include <span>

#include "trireme/base/rng.h"
#include "trireme/nn/spec.h"

namespace trireme {

// The customary gain of a hidden layer: sqrt(2) for orthogonal, the activation's own gain otherwise.
double HiddenGain(Init init, Activation activation);

// Fills a weight matrix stored row by row, [rows, size / rows]. The distribution does not depend on which of
// the two dimensions is the input.
void InitialiseWeights(Init init, double gain, int inputs, int outputs, int rows, std::span<float> weights,
                       RandomStream& random);

}  // namespace trireme
