#include "trireme/env/classic/acrobot.h"

#include <cmath>

#include "trireme/env/classic/drawing/style.h"
#include "trireme/picture/canvas.h"

namespace trireme {

void Acrobot::Draw(const std::array<double, kStateSize>& s, Picture& out) {
  constexpr int kSize = 400;
  constexpr double kScale = 86;  // pixels of a link
  constexpr double kBar = 1;     // height to be reached, above the joint that is fixed
  constexpr Point kJoint{kSize / 2.0, kSize / 2.0 + 8};

  Canvas canvas(out, kSize, kSize, style::kSky);
  for (int x = 14; x < kSize; x += 24) {
    constexpr double kHeight = kJoint.y - kBar * kScale;
    canvas.DrawLine({x * 1.0, kHeight}, {x + 12.0, kHeight}, 3, style::kGreen);
  }
  canvas.DrawLine({kJoint.x - 46, kJoint.y}, {kJoint.x + 46, kJoint.y}, 5, style::kGroundEdge);

  // Angles are counted from hanging down, to the right; the second from the first.
  const auto below = [&](Point from, double angle) {
    return Point{from.x + kScale * std::sin(angle), from.y + kScale * std::cos(angle)};
  };
  const Point elbow = below(kJoint, s[0]), tip = below(elbow, s[0] + s[1]);
  canvas.DrawLine(kJoint, elbow, 19, style::kBlue);
  canvas.DrawLine(elbow, tip, 19, style::kOrange);
  for (const Point joint : {kJoint, elbow}) {
    canvas.FillCircle(joint, 6.5, style::kInk);
    canvas.FillCircle(joint, 2.5, style::kSky);
  }
}

}  // namespace trireme
