// The compression of GIF.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme {

// Codes of 9 to 12 bits for these bytes, in blocks of at most 255 bytes, each after its length; an empty one ends it.
std::string LzwBlocks(std::span<const std::uint8_t> bytes);

}  // namespace trireme
