// Few colours that stand for many, by median cut: the colours of a picture are divided in two at the middle of their
// longest extent, then the half with most pixels and extent again, and so on; each part is shown by its mean.
// Heckbert, "Color image quantization for frame buffer display", 1982.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/picture/picture.h"

namespace trireme {

class Palette {
 public:
  // At most `most` colours for these pixels. Requires some of both.
  Palette(std::span<const Colour> pixels, int most);

  const std::vector<Colour>& colours() const { return colours_; }
  // Of the colour that stands for one of the pixels.
  int IndexOf(Colour pixel) const { return index_[Bin(pixel)]; }

 private:
  // Colours that differ in less than the upper five bits are not told apart.
  static constexpr int kBins = 1 << 15;
  static int Bin(Colour c) { return (c.red >> 3) << 10 | (c.green >> 3) << 5 | c.blue >> 3; }

  std::vector<Colour> colours_;
  std::vector<std::uint8_t> index_ = std::vector<std::uint8_t>(kBins);
};

}  // namespace trireme
