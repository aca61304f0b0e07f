// CRC-32C (Castagnoli), as TFRecord files use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

std::uint32_t Crc32c(std::string_view bytes);

// TFRecord stores checksums rotated and offset, so that a checksum of data that holds checksums stays strong.
inline std::uint32_t MaskedCrc32c(std::string_view bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace trireme
