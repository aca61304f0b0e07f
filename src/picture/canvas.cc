#include "trireme/picture/canvas.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kFar = 1e7;  // pixels; who is farther away is there

// Corners of the arc from the angle `begin`, clockwise from the right, over the angle `over`; both ends included.
void AddArc(Point centre, double radius, double begin, double over, std::vector<Point>& corners) {
  // A chord over the angle a is radius (1 - cos(a / 2)), about radius a² / 8, from its arc.
  const double step = std::sqrt(0.2 / std::clamp(radius, 0.2, 1e4));
  const int parts = std::max(1, static_cast<int>(std::ceil(over / step)));
  for (int i = 0; i <= parts; ++i) {
    const double angle = begin + over * i / parts;
    corners.push_back({centre.x + radius * std::cos(angle), centre.y + radius * std::sin(angle)});
  }
}

std::vector<Point> Capsule(Point from, Point to, double width) {
  const double angle = std::atan2(to.y - from.y, to.x - from.x);
  std::vector<Point> corners;
  AddArc(to, width / 2, angle - kPi / 2, kPi, corners);
  AddArc(from, width / 2, angle + kPi / 2, kPi, corners);
  return corners;
}

// What lies right of the line from (low, 0) to (high, 1), or the other way round, and left of `x`, in the strip
// between y = 0 and y = 1: the integral of the share of the strip that is right of the line.
double AreaUpTo(double x, double low, double high) {
  if (x <= low) return 0;
  if (x >= high) return x - (low + high) / 2;
  return (x - low) * (x - low) / (2 * (high - low));
}

// `share` of 256 parts.
std::uint8_t Mix(int from, int to, int share) {
  return static_cast<std::uint8_t>(from + (((to - from) * share + 128) >> 8));
}

}  // namespace

Canvas::Canvas(Picture& picture, int width, int height, Colour ground) : picture_(picture) {
  picture_.Fill(width, height, ground);
}

void Canvas::FillPolygon(std::span<const Point> corners, Colour colour) {
  double left = picture_.width, right = 0, top = picture_.height, bottom = 0;
  for (const Point& corner : corners) {
    if (!std::isfinite(corner.x) || !std::isfinite(corner.y)) return;
    left = std::min(left, corner.x);
    right = std::max(right, corner.x);
    top = std::min(top, corner.y);
    bottom = std::max(bottom, corner.y);
  }
  const int first_column = static_cast<int>(std::max(left, 0.0));
  const int first_row = static_cast<int>(std::max(top, 0.0));
  const int columns = static_cast<int>(std::ceil(std::min<double>(right, picture_.width))) - first_column;
  const int rows = static_cast<int>(std::ceil(std::min<double>(bottom, picture_.height))) - first_row;
  if (columns <= 0 || rows <= 0) return;

  change_.assign(static_cast<std::size_t>(rows) * (columns + 1), 0.0f);
  const auto from_box = [&](Point p) {
    return Point{std::clamp(p.x, -kFar, kFar) - first_column, std::clamp(p.y, -kFar, kFar) - first_row};
  };
  for (std::size_t i = 0; i < corners.size(); ++i) {
    AddEdge(from_box(corners[i]), from_box(corners[(i + 1) % corners.size()]), rows, columns);
  }
  for (int row = 0; row < rows; ++row) {
    const float* change = &change_[static_cast<std::size_t>(row) * (columns + 1)];
    std::uint8_t* pixel =
        &picture_.rgb[(static_cast<std::size_t>(first_row + row) * picture_.width + first_column) * 3];
    float covered = 0;
    for (int column = 0; column < columns; ++column, pixel += 3) {
      covered += change[column];
      const auto share = static_cast<int>(std::lround(std::min(std::abs(covered), 1.0f) * 256));
      if (share == 0) continue;
      if (share == 256) {
        pixel[0] = colour.red;
        pixel[1] = colour.green;
        pixel[2] = colour.blue;
        continue;
      }
      pixel[0] = Mix(pixel[0], colour.red, share);
      pixel[1] = Mix(pixel[1], colour.green, share);
      pixel[2] = Mix(pixel[2], colour.blue, share);
    }
  }
}

// What is right of an edge that goes down is covered, what is right of one that goes up is uncovered again.
void Canvas::AddEdge(Point from, Point to, int rows, int columns) {
  if (from.y == to.y) return;
  const double sign = from.y < to.y ? 1 : -1;
  if (sign < 0) std::swap(from, to);
  const double slope = (to.x - from.x) / (to.y - from.y);
  const int last_row = static_cast<int>(std::ceil(std::min<double>(to.y, rows)));
  for (int row = static_cast<int>(std::max(from.y, 0.0)); row < last_row; ++row) {
    const double begin = std::max<double>(row, from.y), end = std::min<double>(row + 1, to.y);
    const double height = sign * (end - begin);
    const auto x_at = [&](double y) {
      return std::clamp(from.x + (y - from.y) * slope, 0.0, static_cast<double>(columns));
    };
    const auto [low, high] = std::minmax({x_at(begin), x_at(end)});
    float* change = &change_[static_cast<std::size_t>(row) * (columns + 1)];
    double before = 0;  // what the edge covers of the pixel on the left
    for (int column = static_cast<int>(low); column <= std::min(columns, static_cast<int>(high) + 1);
         ++column) {
      const double covers = height * (AreaUpTo(column + 1, low, high) - AreaUpTo(column, low, high));
      change[column] += static_cast<float>(covers - before);
      before = covers;
    }
  }
}

void Canvas::FillCircle(Point centre, double radius, Colour colour) {
  std::vector<Point> corners;
  AddArc(centre, radius, 0, 2 * kPi, corners);
  FillPolygon(corners, colour);
}

// The inner circle the other way round uncovers what the outer one covers.
void Canvas::DrawCircle(Point centre, double radius, double width, Colour colour) {
  std::vector<Point> corners, inner;
  AddArc(centre, radius + width / 2, 0, 2 * kPi, corners);
  AddArc(centre, radius - width / 2, 0, 2 * kPi, inner);
  corners.insert(corners.end(), inner.rbegin(), inner.rend());
  FillPolygon(corners, colour);
}

void Canvas::DrawLine(Point from, Point to, double width, Colour colour) {
  FillPolygon(Capsule(from, to, width), colour);
}

void Canvas::DrawLines(std::span<const Point> points, double width, Colour colour) {
  for (std::size_t i = 1; i < points.size(); ++i) DrawLine(points[i - 1], points[i], width, colour);
}

std::vector<Point> RoundBox(Point upper_left, double width, double height, double radius, double angle,
                            Point pivot) {
  const auto [x, y] = upper_left;
  std::vector<Point> corners;
  AddArc({x + width - radius, y + radius}, radius, -kPi / 2, kPi / 2, corners);
  AddArc({x + width - radius, y + height - radius}, radius, 0, kPi / 2, corners);
  AddArc({x + radius, y + height - radius}, radius, kPi / 2, kPi / 2, corners);
  AddArc({x + radius, y + radius}, radius, kPi, kPi / 2, corners);
  for (Point& corner : corners) corner = Turned(corner, angle, pivot);
  return corners;
}

Point Turned(Point point, double angle, Point pivot) {
  const double dx = point.x - pivot.x, dy = point.y - pivot.y;
  return {pivot.x + dx * std::cos(angle) - dy * std::sin(angle),
          pivot.y + dx * std::sin(angle) + dy * std::cos(angle)};
}

}  // namespace trireme
