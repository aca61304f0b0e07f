#include "trireme/picture/canvas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace trireme {
namespace {

constexpr Colour kWhite{255, 255, 255}, kBlack{0, 0, 0};

// How much of each pixel is black, summed.
double Area(const Picture& picture) {
  double area = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) area += (255 - picture.rgb[i]) / 255.0;
  return area;
}

struct CanvasTest : testing::Test {
  Picture picture;
  Canvas canvas{picture, 40, 30, kWhite};
};

TEST_F(CanvasTest, BeginsWithItsGround) {
  EXPECT_EQ(picture.width, 40);
  EXPECT_EQ(picture.height, 30);
  EXPECT_EQ(Area(picture), 0);
}

TEST_F(CanvasTest, CoversWholePixelsWhollyAndOthersByTheirShare) {
  const std::vector<Point> box = {{2, 3}, {5.5, 3}, {5.5, 4.25}, {2, 4.25}};
  canvas.FillPolygon(box, kBlack);
  EXPECT_EQ(picture.At(2, 3), kBlack);
  EXPECT_EQ(picture.At(4, 3), kBlack);
  EXPECT_EQ(picture.At(5, 3).red, 128);
  EXPECT_EQ(picture.At(2, 4).red, 191);
  EXPECT_EQ(picture.At(5, 4).red, 223);
  for (const auto& [x, y] : {std::pair{1, 3}, {6, 3}, {3, 2}, {3, 5}}) EXPECT_EQ(picture.At(x, y), kWhite);
}

TEST_F(CanvasTest, AreasAreThoseOfTheShapes) {
  const auto area_of = [&](const auto& draw) {
    picture.Fill(40, 30, kWhite);
    draw();
    return Area(picture);
  };
  const std::vector<Point> triangle = {{3.3, 2.1}, {30.7, 9.9}, {11.2, 27.4}};
  const std::vector<Point> other_way(triangle.rbegin(), triangle.rend());
  const double exact = 0.5 * std::abs((30.7 - 3.3) * (27.4 - 2.1) - (11.2 - 3.3) * (9.9 - 2.1));
  EXPECT_NEAR(area_of([&] { canvas.FillPolygon(triangle, kBlack); }), exact, 0.2);
  EXPECT_NEAR(area_of([&] { canvas.FillPolygon(other_way, kBlack); }), exact, 0.2);
  EXPECT_NEAR(area_of([&] {
                canvas.FillCircle({20.3, 14.8}, 9.5, kBlack);
              }),
              std::numbers::pi * 9.5 * 9.5, 2.5);
  EXPECT_NEAR(area_of([&] {
                canvas.DrawLine({8, 7}, {30, 22}, 3, kBlack);
              }),
              3 * std::hypot(22, 15) + std::numbers::pi * 2.25, 1);
  EXPECT_NEAR(area_of([&] {
                canvas.FillPolygon(RoundBox({5, 5}, 20, 10, 3), kBlack);
              }),
              200 - (4 - std::numbers::pi) * 9, 1);
  EXPECT_NEAR(area_of([&] {
                canvas.FillPolygon(RoundBox({10, 10}, 16, 8, 2, 0.7, {18, 14}), kBlack);
              }),
              128 - (4 - std::numbers::pi) * 4, 1);
}

TEST_F(CanvasTest, ARingIsOpenInTheMiddle) {
  canvas.DrawCircle({20, 15}, 10, 4, kBlack);
  EXPECT_NEAR(Area(picture), std::numbers::pi * (144 - 64), 2);
  EXPECT_EQ(picture.At(20, 15), kWhite);
  EXPECT_EQ(picture.At(10, 15), kBlack);
}

TEST_F(CanvasTest, AConcaveShapeLeavesItsBayOpen) {
  const std::vector<Point> hook = {{2, 2}, {20, 2}, {20, 20}, {15, 20}, {15, 7}, {2, 7}};
  canvas.FillPolygon(hook, kBlack);
  EXPECT_EQ(picture.At(8, 12), kWhite);
  EXPECT_NEAR(Area(picture), 18 * 5 + 5 * 13, 0.01);
}

TEST_F(CanvasTest, WhatLiesOutsideIsCutOff) {
  const std::vector<Point> half = {{-100, -50}, {20, -50}, {20, 80}, {-100, 80}};
  canvas.FillPolygon(half, kBlack);
  EXPECT_NEAR(Area(picture), 20 * 30, 0.01);
  picture.Fill(40, 30, kWhite);
  for (const Point centre : {Point{-30, 15}, {70, 15}, {20, -30}, {20, 60}})
    canvas.FillCircle(centre, 12, kBlack);
  EXPECT_EQ(Area(picture), 0);
  canvas.FillCircle({0, 15}, 10, kBlack);
  EXPECT_NEAR(Area(picture), std::numbers::pi * 50, 2);
}

TEST_F(CanvasTest, TakesNumbersThatAreNone) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -inf}) {
    canvas.FillCircle({bad, 5}, 3, kBlack);
    canvas.DrawLine({5, bad}, {9, 9}, 3, kBlack);
    canvas.FillPolygon(RoundBox({1, 1}, 5, 5, 1, bad), kBlack);
  }
  canvas.FillPolygon({}, kBlack);
  EXPECT_EQ(Area(picture), 0);
  const std::vector<Point> vast = {{-1e300, -1e300}, {1e300, -1e300}, {1e300, 1e300}, {-1e300, 1e300}};
  canvas.FillPolygon(vast, kBlack);
  EXPECT_EQ(Area(picture), 40 * 30);
}

TEST_F(CanvasTest, TurnsClockwise) {
  const Point turned = Turned({3, 1}, std::numbers::pi / 2, {1, 1});
  EXPECT_NEAR(turned.x, 1, 1e-12);
  EXPECT_NEAR(turned.y, 3, 1e-12);
}

}  // namespace
}  // namespace trireme
