#include "trireme/env/classic/cart_pole.h"

#include "trireme/env/classic/drawing/style.h"
#include "trireme/picture/canvas.h"

namespace trireme {

void CartPole::Draw(const std::array<double, kStateSize>& s, Picture& out) {
  constexpr int kWidth = 600, kHeight = 400;
  constexpr double kScale = 106;  // pixels of a metre
  constexpr double kRail = 300;   // height of the rail in the picture
  constexpr double kEnd = 2.4;    // where the episode ends
  constexpr double kCartWidth = 82, kCartHeight = 40, kWheel = 11, kPoleWidth = 13;

  Canvas canvas(out, kWidth, kHeight, style::kSky);
  const auto x_of = [](double x) { return kWidth / 2.0 + kScale * x; };
  const Point ground[] = {{0, kRail}, {kWidth, kRail}, {kWidth, kHeight}, {0, kHeight}};
  canvas.FillPolygon(ground, style::kGround);
  canvas.DrawLine({0, kRail}, {kWidth, kRail}, 3, style::kGroundEdge);
  for (int metre = -2; metre <= 2; ++metre) {
    canvas.DrawLine({x_of(metre), kRail + 8}, {x_of(metre), kRail + (metre == 0 ? 22 : 14)}, 2,
                    style::kGroundEdge);
  }
  for (const double end : {-kEnd, kEnd}) {
    canvas.DrawLine({x_of(end), kRail - 16}, {x_of(end), kRail + 16}, 5, style::kMuted);
  }

  const auto [x, x_dot, theta, theta_dot] = s;
  const double cart = x_of(x), floor = kRail - 1.5 - 1.5 * kWheel;
  const Point joint{cart, floor - kCartHeight + 9};
  canvas.FillPolygon(RoundBox({cart - kCartWidth / 2, floor - kCartHeight}, kCartWidth, kCartHeight, 7),
                     style::kBlue);
  for (const double wheel : {-0.29 * kCartWidth, 0.29 * kCartWidth}) {
    canvas.FillCircle({cart + wheel, kRail - 1.5 - kWheel}, kWheel, style::kInk);
    canvas.FillCircle({cart + wheel, kRail - 1.5 - kWheel}, 4, style::kGround);
  }
  canvas.DrawLine(joint, Turned({joint.x, joint.y - kScale}, theta, joint), kPoleWidth, style::kOrange);
  canvas.FillCircle(joint, 4, style::kInk);
}

}  // namespace trireme
