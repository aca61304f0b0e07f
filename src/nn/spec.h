// What a network looks like, without its numbers.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {

enum class Activation { kTanh, kRelu, kElu, kSilu };
inline constexpr EnumName<Activation> kActivationNames[] = {{"tanh", Activation::kTanh},
                                                            {"relu", Activation::kRelu},
                                                            {"elu", Activation::kElu},
                                                            {"silu", Activation::kSilu}};

enum class Init { kOrthogonal, kKaiming, kXavier };
inline constexpr EnumName<Init> kInitNames[] = {
    {"orthogonal", Init::kOrthogonal}, {"kaiming", Init::kKaiming}, {"xavier", Init::kXavier}};

// A fully connected tower: inputs -> hidden... -> outputs, `activation` after each hidden layer, linear at
// the end.
struct TowerSpec {
  std::string name;
  int inputs = 0;
  std::vector<int> hidden;  // at least one layer
  int outputs = 0;
  Activation activation = Activation::kTanh;
  Init init = Init::kOrthogonal;
  double head_gain = 1.0;  // scale of the last layer's initial weights
};

// Towers that read the same input, and vectors of parameters that no input passes through (log_std of a
// Gaussian).
struct NetworkSpec {
  struct FreeVector {
    std::string name;
    int size = 0;
    float initial = 0;
  };
  std::vector<TowerSpec> towers;
  std::vector<FreeVector> free_vectors;
};

}  // namespace trireme
