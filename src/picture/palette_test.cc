#include "trireme/picture/palette.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

TEST(Palette, FewColoursStayAsTheyAre) {
  const std::vector<Colour> pixels = {{0, 0, 0}, {255, 255, 255}, {213, 94, 0}, {0, 0, 0}, {0, 114, 178}};
  const Palette palette(pixels, 8);
  EXPECT_EQ(palette.colours().size(), 4u);
  for (const Colour& pixel : pixels) EXPECT_EQ(palette.colours()[palette.IndexOf(pixel)], pixel);
}

TEST(Palette, OneColourIsTheMean) {
  const Palette palette(std::vector<Colour>{{0, 10, 0}, {100, 20, 0}, {200, 30, 0}}, 1);
  ASSERT_EQ(palette.colours().size(), 1u);
  EXPECT_EQ(palette.colours()[0], (Colour{100, 20, 0}));
}

TEST(Palette, ManyColoursAreShownByNearOnes) {
  RandomStream random(1, Purpose::kTest, 0, 0);
  std::vector<Colour> pixels;
  for (int i = 0; i < 50'000; ++i) {
    const auto channel = [&] { return static_cast<std::uint8_t>(random.NextBelow(256)); };
    pixels.push_back({channel(), channel(), channel()});
  }
  const Palette palette(pixels, 255);
  EXPECT_EQ(palette.colours().size(), 255u);
  double error = 0;
  std::set<int> used;
  for (const Colour& pixel : pixels) {
    const int index = palette.IndexOf(pixel);
    used.insert(index);
    const Colour shown = palette.colours()[index];
    error += std::abs(pixel.red - shown.red) + std::abs(pixel.green - shown.green) +
             std::abs(pixel.blue - shown.blue);
  }
  EXPECT_EQ(used.size(), 255u);
  // A cube of 256^3 in 255 boxes: each about 40 wide, 10 off on average in each channel.
  EXPECT_LT(error / 3 / 50'000, 12);
}

// A rare colour far away from all others is not lost among them.
TEST(Palette, LooksAtExtentAndNotOnlyAtPixels) {
  std::vector<Colour> pixels;
  for (int i = 0; i < 10'000; ++i) pixels.push_back({static_cast<std::uint8_t>(i % 64), 0, 0});
  for (int i = 0; i < 60; ++i) pixels.push_back({0, 255, 255});
  const Palette palette(pixels, 8);
  EXPECT_EQ(palette.colours()[palette.IndexOf({0, 255, 255})], (Colour{0, 255, 255}));
}

}  // namespace
}  // namespace trireme
