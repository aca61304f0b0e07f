// Advantage actor-critic: see a2c.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry A2cEntry();

}  // namespace trireme
