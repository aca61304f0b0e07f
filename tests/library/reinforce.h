#pragma once

#include "trireme/algo/algorithm.h"

// The row to add to the table of algorithms.
trireme::AlgorithmEntry ReinforceEntry();
