// Target networks: copies of parameters that follow them slowly. Pure functions.
#pragma once

#include <span>

namespace trireme {

// target <- tau * source + (1 - tau) * target, element by element; tau = 1 copies. Requires equal sizes.
void MoveTowards(std::span<float> target, std::span<const float> source, float tau);

}  // namespace trireme
