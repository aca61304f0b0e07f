// A drawing surface: filled shapes with smooth edges on a picture.
//
// A pixel takes as much of a colour as the shape covers of it. The area is exact for polygons; circles and the round
// ends of lines are polygons with corners that are closer than a thirtieth of a pixel to it. Coordinates are pixels, (0, 0)
// is the upper left corner of the picture and y grows downwards. Shapes may lie outside, whole or in part; one
// with a coordinate that is no number is not drawn.
//
// Thread safety: none.
#pragma once

#include <span>
#include <vector>

#include "trireme/picture/picture.h"

namespace trireme {

struct Point {
  double x = 0, y = 0;
};

class Canvas {
 public:
  // `picture` becomes `ground`, of this size; it outlives the canvas.
  Canvas(Picture& picture, int width, int height, Colour ground);

  // Corners in either order; the last is joined to the first. Parts that are enclosed twice the same way round are
  // filled like the rest.
  void FillPolygon(std::span<const Point> corners, Colour colour);
  void FillCircle(Point centre, double radius, Colour colour);
  void DrawCircle(Point centre, double radius, double width, Colour colour);
  // With round ends.
  void DrawLine(Point from, Point to, double width, Colour colour);
  // Joined by round corners.
  void DrawLines(std::span<const Point> points, double width, Colour colour);

 private:
  void AddEdge(Point from, Point to, int rows, int columns);

  Picture& picture_;
  std::vector<float>
      change_;  // [rows, columns + 1]: of the covered share from one pixel of a row to the next
};

// A box with round corners, turned clockwise by `angle` about `pivot`.
std::vector<Point> RoundBox(Point upper_left, double width, double height, double radius, double angle = 0,
                            Point pivot = {});
// `point` turned clockwise (as it is seen: y grows downwards) by `angle` about `pivot`.
Point Turned(Point point, double angle, Point pivot);

}  // namespace trireme
