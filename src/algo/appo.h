// Asynchronous PPO: see appo.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry AppoEntry();

}  // namespace trireme
