// Drawings show the state: where things are in the picture is measured by their colours.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

#include "trireme/base/file.h"
#include "trireme/env/batch.h"
#include "trireme/env/classic/drawing/style.h"
#include "trireme/picture/canvas.h"

namespace trireme {
namespace {

constexpr double kPi = std::numbers::pi;

Picture Drawn(const std::string& env, const std::vector<double>& state) {
  const auto batch = FindEnv(env).make_drawn(1);
  batch->Reset(1, Purpose::kTest, 0);
  dynamic_cast<SettableBatch&>(*batch).SetState(0, state);
  Picture picture;
  batch->pictures()->Draw(0, picture);
  return picture;
}

// The middle of all pixels of a colour.
Point Middle(const Picture& picture, Colour colour) {
  Point sum;
  int count = 0;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      if (picture.At(x, y) != colour) continue;
      sum.x += x + 0.5;
      sum.y += y + 0.5;
      ++count;
    }
  }
  EXPECT_GT(count, 100);
  return {sum.x / count, sum.y / count};
}

// Of the way from `from` to `to`, clockwise from upright.
double Direction(Point from, Point to) { return std::atan2(to.x - from.x, from.y - to.y); }

TEST(Drawing, CartPoleStandsWhereItStandsAndLeansAsItLeans) {
  for (const double x : {-2.4, -1.0, 0.0, 0.7, 2.4}) {
    for (const double theta : {-0.2, 0.0, 0.05, 0.2}) {
      const Picture picture = Drawn("CartPole-v1", {x, 0, theta, 0});
      EXPECT_EQ(picture.width, 600);
      EXPECT_EQ(picture.height, 400);
      const Point cart = Middle(picture, style::kBlue), pole = Middle(picture, style::kOrange);
      EXPECT_NEAR(cart.x, 300 + 106 * x, 2);
      const Point joint{300 + 106 * x, 300 - 1.5 - 16.5 - 40 + 9};
      EXPECT_NEAR(Direction(joint, pole), theta, 0.02);
    }
  }
}

TEST(Drawing, PendulumIsUprightAtZeroAndLeansLeftFromThere) {
  for (const double theta : {0.0, 0.4, -0.4, kPi / 2, -kPi / 2, 2.5, kPi, 7.0}) {
    const Picture picture = Drawn("Pendulum-v1", {theta, 0});
    const double shown = -Direction({200, 200}, Middle(picture, style::kOrange));
    EXPECT_NEAR(std::remainder(shown - theta, 2 * kPi), 0, 0.03) << theta;
  }
}

TEST(Drawing, MountainCarsFollowTheHillToTheFlag) {
  for (const auto& [env, goal] : {std::pair{"MountainCar-v0", 0.5}, {"MountainCarContinuous-v0", 0.45}}) {
    const double scale = 600 / 1.8;
    double height_before = 0;
    for (const double position : {-0.52, -0.1, 0.2, 0.44}) {
      const Picture picture = Drawn(env, {position, 0});
      const Point car = Middle(picture, style::kBlue);
      const double slope = 1.35 * std::cos(3 * position);
      EXPECT_NEAR(car.x, (position + 1.2) * scale - 20 * std::sin(std::atan(slope)), 6);
      const double height = 400 - car.y;
      EXPECT_GT(height, height_before);
      height_before = height;
      EXPECT_NEAR(Middle(picture, style::kGreen).x, (goal + 1.2) * scale - 12, 3);
    }
  }
}

TEST(Drawing, AcrobotHangsAtZeroAndItsSecondAngleIsThatOfTheElbow) {
  const Point joint{200, 208};
  for (const double first : {0.0, 0.8, -2.0, kPi}) {
    for (const double second : {0.0, 1.0, -1.5}) {
      const Picture picture = Drawn("Acrobot-v1", {first, second, 0, 0});
      const Point elbow{joint.x + 86 * std::sin(first), joint.y + 86 * std::cos(first)};
      const double shown = Direction(elbow, Middle(picture, style::kOrange));
      EXPECT_NEAR(std::remainder(shown - (kPi - first - second), 2 * kPi), 0, 0.04);
    }
  }
}

TEST(Drawing, TakesStatesThatAreNoNumbers) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const EnvEntry& env : AllEnvs()) {
    const auto batch = env.make_drawn(1);
    const std::size_t size = dynamic_cast<SettableBatch&>(*batch).StateOf(0).size();
    for (const double bad : {nan, inf, -inf, 1e300}) {
      EXPECT_NO_THROW(CheckPicture(Drawn(env.spec.name, std::vector<double>(size, bad)), "it"));
    }
  }
}

// A drawing is a function of the state: the same bytes everywhere. Whoever changes one looks at it, and then here.
TEST(Drawing, IsTheSameEverywhere) {
  const auto hash = [](const Picture& picture) {
    return Sha256Hex({reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()}).substr(0, 16);
  };
  EXPECT_EQ(hash(Drawn("CartPole-v1", {0.5, 0, 0.1, 0})), "a6d80ab3790525f7");
  EXPECT_EQ(hash(Drawn("Pendulum-v1", {0.7, 0})), "c31fae6f1b2fe0db");
  EXPECT_EQ(hash(Drawn("MountainCar-v0", {-0.3, 0})), "303bad58aed103b6");
  EXPECT_EQ(hash(Drawn("MountainCarContinuous-v0", {0.3, 0})), "3dd2e43a91dbaba1");
  EXPECT_EQ(hash(Drawn("Acrobot-v1", {1, 0.5, 0, 0})), "9672071cf782c09a");
}

}  // namespace
}  // namespace trireme
