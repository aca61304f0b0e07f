// A picture of an environment: what drawings are made on, and what films, PNG files and reports are made of.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;

  bool operator==(const Colour&) const = default;
};

struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb = {};  // [height, width, 3], rows from the top

  // Gives it this size and fills it with one colour. What it held is gone, its memory is used again.
  void Fill(int new_width, int new_height, Colour colour);
  Colour At(int x, int y) const;

  bool operator==(const Picture&) const = default;
};

// Throws Error that begins with `name`, whose picture it is, unless there are 1 to 8192 pixels each way and `rgb` has
// just these.
void CheckPicture(const Picture& picture, const char* name);

// At most so wide, in the same proportions: every pixel is the mean of those that it covers.
Picture Shrink(const Picture& picture, int width);

}  // namespace trireme
