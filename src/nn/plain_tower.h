// A tower by the book: plain loops in double, one sample and one number at a time, in a parameter buffer as
// the network lays it out. For tests to compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/nn/layout.h"
#include "trireme/nn/spec.h"

namespace trireme {

using Numbers = std::vector<double>;

inline Numbers ToNumbers(const std::vector<float>& values) { return {values.begin(), values.end()}; }

inline double PlainActivation(Activation activation, double z) {
  switch (activation) {
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kElu:
      return z > 0 ? z : std::expm1(z);
    case Activation::kSilu:
      break;
  }
  return z / (1 + std::exp(-z));
}

// Its derivative.
inline double PlainSlope(Activation activation, double z) {
  const double sigmoid = 1 / (1 + std::exp(-z));
  switch (activation) {
    case Activation::kTanh:
      return 1 - std::tanh(z) * std::tanh(z);
    case Activation::kRelu:
      return z > 0 ? 1 : 0;
    case Activation::kElu:
      return z > 0 ? 1 : std::exp(z);
    case Activation::kSilu:
      break;
  }
  return sigmoid + z * sigmoid * (1 - sigmoid);
}

class PlainTower {
 public:
  PlainTower(const TowerSpec& spec, const ParamLayout& layout) : activation_(spec.activation) {
    const auto tensor = [&](const std::string& name) {
      const auto found = std::ranges::find(layout.tensors(), name, &TensorInfo::name);
      TRIREME_CHECK(found != layout.tensors().end());
      return *found;
    };
    int inputs = spec.inputs;
    for (std::size_t l = 0; l <= spec.hidden.size(); ++l) {
      const bool head = l == spec.hidden.size();
      const std::string scope = spec.name + (head ? "/head" : fmt::format("/{}", l));
      layers_.push_back({.inputs = inputs,
                         .outputs = head ? spec.outputs : spec.hidden[l],
                         .head = head,
                         .weight = tensor(scope + "/weight"),
                         .bias = tensor(scope + "/bias").offset});
      inputs = layers_.back().outputs;
    }
  }

  Numbers Forward(const Numbers& params, const Numbers& x) const {
    const Pass pass = Run(params, x);
    return pass.z.back();
  }

  // Adds sum_i d_out[i] * (gradient of output i at x with respect to the parameters), and returns the same
  // with respect to x.
  Numbers AddGradient(const Numbers& params, const Numbers& x, const Numbers& d_out,
                      Numbers& gradient) const {
    const Pass pass = Run(params, x);
    Numbers dz = d_out;
    for (std::size_t l = layers_.size(); l-- > 0;) {
      const Layer& layer = layers_[l];
      Numbers dx(static_cast<std::size_t>(layer.inputs), 0.0);
      for (int o = 0; o < layer.outputs; ++o) {
        gradient[layer.bias + o] += dz[o];
        for (int i = 0; i < layer.inputs; ++i) {
          gradient[layer.Weight(i, o)] += dz[o] * pass.x[l][i];
          dx[i] += dz[o] * params[layer.Weight(i, o)];
        }
      }
      for (int i = 0; l > 0 && i < layer.inputs; ++i) dx[i] *= PlainSlope(activation_, pass.z[l - 1][i]);
      dz = dx;
    }
    return dz;
  }

  // The smallest |z| ahead of an activation: near 0 the slope of ReLU hangs on rounding.
  double ClosestToZero(const Numbers& params, const Numbers& x) const {
    const Pass pass = Run(params, x);
    double closest = std::numeric_limits<double>::infinity();
    for (std::size_t l = 0; l + 1 < pass.z.size(); ++l) {
      for (const double z : pass.z[l]) closest = std::min(closest, std::fabs(z));
    }
    return closest;
  }

 private:
  struct Layer {
    int inputs, outputs;
    bool head;
    TensorInfo weight;
    std::size_t bias;
    std::size_t Weight(int in, int out) const {
      return weight.offset + (head ? ElementIndex(weight, out, in) : ElementIndex(weight, in, out));
    }
  };
  // What each layer reads, and what it makes of it ahead of the activation.
  struct Pass {
    std::vector<Numbers> x, z;
  };

  Pass Run(const Numbers& params, const Numbers& x) const {
    Pass pass;
    Numbers in = x;
    for (const Layer& layer : layers_) {
      Numbers z, y;
      for (int o = 0; o < layer.outputs; ++o) {
        double sum = params[layer.bias + o];
        for (int i = 0; i < layer.inputs; ++i) sum += params[layer.Weight(i, o)] * in[i];
        z.push_back(sum);
        y.push_back(PlainActivation(activation_, sum));
      }
      pass.x.push_back(std::exchange(in, y));
      pass.z.push_back(z);
    }
    return pass;
  }

  Activation activation_;
  std::vector<Layer> layers_;
};

}  // namespace trireme
