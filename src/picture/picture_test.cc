#include "trireme/picture/picture.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

TEST(Picture, IsFilledAndFilledAgain) {
  Picture picture;
  picture.Fill(3, 2, {1, 2, 3});
  EXPECT_EQ(picture.rgb.size(), 18u);
  EXPECT_EQ(picture.At(2, 1), (Colour{1, 2, 3}));
  picture.Fill(1, 1, {9, 8, 7});
  EXPECT_EQ(picture.rgb, (std::vector<std::uint8_t>{9, 8, 7}));
}

TEST(Picture, IsCheckedBeforeItIsUsed) {
  Picture picture;
  picture.Fill(3, 2, {});
  EXPECT_NO_THROW(CheckPicture(picture, "Env-v0"));
  picture.rgb.pop_back();
  EXPECT_THROW(CheckPicture(picture, "Env-v0"), Error);
  EXPECT_THROW(CheckPicture({}, "Env-v0"), Error);
  EXPECT_THROW(CheckPicture({.width = 100'000, .height = 1, .rgb = {}}, "Env-v0"), Error);
  EXPECT_THROW(CheckPicture({.width = -1, .height = -1, .rgb = {0, 0, 0}}, "Env-v0"), Error);
}

TEST(Picture, ShrinksToMeans) {
  Picture picture;
  picture.Fill(4, 2, {100, 0, 0});
  for (int i = 0; i < 2; ++i) picture.rgb[i * 12] = 200;  // the leftmost pixel of both rows
  const Picture half = Shrink(picture, 2);
  EXPECT_EQ(half.width, 2);
  EXPECT_EQ(half.height, 1);
  EXPECT_EQ(half.At(0, 0), (Colour{150, 0, 0}));
  EXPECT_EQ(half.At(1, 0), (Colour{100, 0, 0}));
  EXPECT_EQ(Shrink(picture, 4), picture);
  EXPECT_EQ(Shrink(picture, 100), picture);
}

TEST(Picture, ShrinksByPartsOfPixels) {
  Picture picture;
  picture.Fill(3, 3, {0, 0, 0});
  picture.rgb[(1 * 3 + 1) * 3] = 225;  // red in the middle, a quarter of which is in each of four pixels
  const Picture small = Shrink(picture, 2);
  ASSERT_EQ(small.height, 2);
  for (const auto& [x, y] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}})
    EXPECT_EQ(small.At(x, y), (Colour{25, 0, 0}));
}

TEST(Picture, KeepsAColourWhateverTheSize) {
  Picture picture;
  picture.Fill(601, 397, {255, 128, 1});
  for (const int width : {1, 7, 200, 600}) {
    const Picture small = Shrink(picture, width);
    EXPECT_EQ(small.width, width);
    EXPECT_NEAR(small.height, 397.0 * width / 601, 0.51);
    Picture expected;
    expected.Fill(small.width, small.height, {255, 128, 1});
    EXPECT_EQ(small, expected);
  }
}

}  // namespace
}  // namespace trireme
