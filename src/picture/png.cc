#include "trireme/picture/png.h"

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string BigEndian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// Its length, its type, what it holds, and a checksum of the last two.
std::string Chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<std::uint32_t>(data.size())) + body +
         BigEndian(static_cast<std::uint32_t>(sum));
}

// Every row as differences from the row above, which are 0 over most of a drawing.
std::string Rows(const Picture& picture) {
  constexpr char kUp = 2;
  const std::size_t stride = static_cast<std::size_t>(picture.width) * 3;
  std::string rows;
  rows.reserve((stride + 1) * picture.height);
  for (int y = 0; y < picture.height; ++y) {
    const std::uint8_t* row = &picture.rgb[y * stride];
    rows += kUp;
    for (std::size_t i = 0; i < stride; ++i)
      rows += static_cast<char>(row[i] - (y > 0 ? (row - stride)[i] : 0));
  }
  return rows;
}

std::string Deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 6);
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  TRIREME_CHECK(result == Z_OK);
  out.resize(size);
  return out;
}

}  // namespace

std::string EncodePng(const Picture& picture) {
  // Eight bits of each of three colours; nothing else has a choice.
  const std::string header = BigEndian(static_cast<std::uint32_t>(picture.width)) +
                             BigEndian(static_cast<std::uint32_t>(picture.height)) +
                             std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + Chunk("IDAT", Deflated(Rows(picture))) +
         Chunk("IEND", "");
}

}  // namespace trireme
