// Importance-weighted actors and learners: see impala.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry ImpalaEntry();

}  // namespace trireme
