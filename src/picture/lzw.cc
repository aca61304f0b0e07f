#include "trireme/picture/lzw.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace trireme {
namespace {

constexpr int kClear = 256, kEnd = 257, kMostCodes = 4096;

// Codes one after the other, their lowest bits first.
class BitWriter {
 public:
  void Put(int code, int width) {
    bits_ |= static_cast<std::uint32_t>(code) << used_;
    for (used_ += width; used_ >= 8; used_ -= 8, bits_ >>= 8) bytes_ += static_cast<char>(bits_);
  }
  std::string Finish() {
    if (used_ > 0) bytes_ += static_cast<char>(bits_);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  std::uint32_t bits_ = 0;
  int used_ = 0;  // of bits_; less than 8 between codes
};

// A code stands for a sequence of bytes. Every code that is written makes a new one: of its own sequence and the byte
// that follows. Codes are as wide as the largest that the reader may know by now; when all are taken it starts again.
std::string Codes(std::span<const std::uint8_t> bytes) {
  BitWriter out;
  std::vector<std::uint16_t> longer(kMostCodes * 256);  // [code, byte]: its code, 0: none
  int next = kEnd + 1, width = 9;
  out.Put(kClear, width);
  int code = bytes[0];
  for (const std::uint8_t byte : bytes.subspan(1)) {
    std::uint16_t& known = longer[static_cast<std::size_t>(code) * 256 + byte];
    if (known != 0) {
      code = known;
      continue;
    }
    out.Put(code, width);
    if (next < kMostCodes) {
      if (next == 1 << width) ++width;
      known = static_cast<std::uint16_t>(next++);
    } else {
      out.Put(kClear, width);
      std::ranges::fill(longer, 0);
      next = kEnd + 1;
      width = 9;
    }
    code = byte;
  }
  out.Put(code, width);
  if (next == 1 << width && width < 12) ++width;  // for the code that the reader makes of the last one
  out.Put(kEnd, width);
  return out.Finish();
}

}  // namespace

std::string LzwBlocks(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kLargest = 255;
  const std::string codes = Codes(bytes);
  std::string blocks;
  for (std::size_t begin = 0; begin < codes.size(); begin += kLargest) {
    const std::string block = codes.substr(begin, kLargest);
    blocks += static_cast<char>(block.size());
    blocks += block;
  }
  return blocks + '\0';
}

}  // namespace trireme
