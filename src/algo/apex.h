// Its registry row; the algorithm is in apex.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry ApexEntry();

}  // namespace trireme
