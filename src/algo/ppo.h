// Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347): see ppo.cc.
#pragma once

#include "trireme/algo/algorithm.h"

namespace trireme {

AlgorithmEntry PpoEntry();

}  // namespace trireme
