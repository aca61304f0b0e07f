#include "trireme/env/classic/drawing/mountain_car.h"

#include <cmath>
#include <vector>

#include "trireme/env/classic/drawing/style.h"
#include "trireme/env/classic/mountain_car.h"
#include "trireme/env/classic/mountain_car_continuous.h"
#include "trireme/picture/canvas.h"

namespace trireme {
namespace {

constexpr int kWidth = 600, kHeight = 400;
constexpr double kLeft = -1.2, kRight = 0.6;            // positions
constexpr double kScale = kWidth / (kRight - kLeft);    // pixels of a unit of position
constexpr double kRise = 0.45 * kScale, kMiddle = 224;  // of the hills, in pixels

Point OnTheHill(double position) {
  return {(position - kLeft) * kScale, kMiddle - kRise * std::sin(3 * position)};
}

}  // namespace

void DrawMountainCar(double position, double goal, Picture& out) {
  constexpr double kCarWidth = 58, kCarHeight = 20, kWheel = 9;

  Canvas canvas(out, kWidth, kHeight, style::kSky);
  std::vector<Point> hills;
  for (int i = -2; i <= 102; ++i) hills.push_back(OnTheHill(kLeft + (kRight - kLeft) * i / 100));
  std::vector<Point> ground = hills;
  ground.push_back({hills.back().x, kHeight});
  ground.push_back({hills.front().x, kHeight});
  canvas.FillPolygon(ground, style::kGround);
  canvas.DrawLines(hills, 4, style::kGroundEdge);

  const Point foot = OnTheHill(goal), top{foot.x, foot.y - 56};
  canvas.DrawLine(foot, top, 4, style::kMuted);
  const Point flag[] = {top, {top.x - 34, top.y + 11}, {top.x, top.y + 22}};
  canvas.FillPolygon(flag, style::kGreen);

  // The car stands on the slope; y grows downwards, so that a rising slope turns it to the left.
  const Point road = OnTheHill(position);
  const double angle = -std::atan(3 * 0.45 * std::cos(3 * position));
  const auto at = [&](double x, double y) { return Turned({road.x + x, road.y - 2 - y}, angle, road); };
  const Point box{road.x - kCarWidth / 2, road.y - 2 - 1.2 * kWheel - kCarHeight};
  const Point cabin{road.x - 17, box.y - 12};
  canvas.FillPolygon(RoundBox(cabin, 34, 20, 7, angle, road), style::kLightBlue);
  canvas.FillPolygon(RoundBox(box, kCarWidth, kCarHeight, 6, angle, road), style::kBlue);
  for (const double wheel : {-16.0, 16.0}) {
    canvas.FillCircle(at(wheel, kWheel), kWheel, style::kInk);
    canvas.FillCircle(at(wheel, kWheel), 3.5, style::kGround);
  }
}

void MountainCar::Draw(const std::array<double, kStateSize>& s, Picture& out) {
  DrawMountainCar(s[0], kGoal, out);
}

void MountainCarContinuous::Draw(const std::array<double, kStateSize>& s, Picture& out) {
  DrawMountainCar(s[0], kGoal, out);
}

}  // namespace trireme
