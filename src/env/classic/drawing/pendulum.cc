#include "trireme/env/classic/pendulum.h"

#include "trireme/env/classic/drawing/style.h"
#include "trireme/picture/canvas.h"

namespace trireme {

void Pendulum::Draw(const std::array<double, kStateSize>& s, Picture& out) {
  constexpr int kSize = 400;
  constexpr double kLength = 145, kRodWidth = 30, kDial = 176;
  constexpr Point kJoint{kSize / 2.0, kSize / 2.0};

  Canvas canvas(out, kSize, kSize, style::kSky);
  canvas.DrawCircle(kJoint, kDial - 1.5, 3, style::kGround);
  for (int eighth = 0; eighth < 8; ++eighth) {
    const double angle = eighth * std::numbers::pi / 4;
    const double inner = kDial - (eighth == 0 ? 16 : 10);
    canvas.DrawLine(Turned({kJoint.x, kJoint.y - inner}, angle, kJoint),
                    Turned({kJoint.x, kJoint.y - kDial}, angle, kJoint), eighth == 0 ? 6 : 3,
                    eighth == 0 ? style::kGreen : style::kGroundEdge);
  }
  // The angle is counted from upright to the left.
  const Point tip = Turned({kJoint.x, kJoint.y - kLength}, -s[0], kJoint);
  canvas.DrawLine(kJoint, tip, kRodWidth, style::kOrange);
  canvas.FillCircle(kJoint, 9, style::kInk);
  canvas.FillCircle(kJoint, 3, style::kSky);
}

}  // namespace trireme
