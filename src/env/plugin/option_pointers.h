// Pointers to an environment's options within the bytes of a saved state.
//
// A state of plain bytes may have kept `const trireme_value*`, or the text of an option: addresses that mean nothing to the
// process that loads it. They are found by their values, noted beside the state, and set to where the options are then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/env_plugin.h"

namespace trireme {

// One pointer: plain data, as it is saved.
struct OptionPointer {
  std::uint64_t at;      // its first byte in the state, a multiple of its size
  std::uint64_t what;    // 0: the values; 1 + i: the text of option i
  std::uint64_t offset;  // bytes from the beginning of that
};

std::vector<OptionPointer> FindOptionPointers(std::span<const trireme_value> options,
                                              std::span<const std::byte> state);
// Throws Error for what cannot be one of these options or lies outside the state.
void SetOptionPointers(std::span<const trireme_value> options, std::span<const OptionPointer> pointers,
                       std::span<std::byte> state);

}  // namespace trireme
