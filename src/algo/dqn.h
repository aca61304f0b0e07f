// Deep Q-learning: see dqn.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry DqnEntry();

}  // namespace trireme
