#include "trireme/picture/picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kLargest = 8192;

// Which pixels of a row (or column) one of a smaller row covers, and how much of each.
struct Cover {
  int first = 0;
  std::vector<float> share = {};  // sums to 1
};

std::vector<Cover> Covers(int from, int to) {
  std::vector<Cover> covers(to);
  const double scale = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) {
    const double begin = i * scale, end = (i + 1) * scale;
    covers[i].first = static_cast<int>(begin);
    for (int k = covers[i].first; k < std::min(from, static_cast<int>(std::ceil(end))); ++k) {
      const double part = std::min<double>(k + 1, end) - std::max<double>(k, begin);
      covers[i].share.push_back(static_cast<float>(part / scale));
    }
  }
  return covers;
}

}  // namespace

void Picture::Fill(int new_width, int new_height, Colour colour) {
  TRIREME_CHECK(new_width > 0 && new_height > 0);
  width = new_width;
  height = new_height;
  rgb.resize(static_cast<std::size_t>(width) * height * 3);
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    rgb[i] = colour.red;
    rgb[i + 1] = colour.green;
    rgb[i + 2] = colour.blue;
  }
}

Colour Picture::At(int x, int y) const {
  TRIREME_CHECK(x >= 0 && x < width && y >= 0 && y < height);
  const std::uint8_t* pixel = &rgb[(static_cast<std::size_t>(y) * width + x) * 3];
  return {pixel[0], pixel[1], pixel[2]};
}

void CheckPicture(const Picture& picture, const char* name) {
  const auto fits = [](int size) { return size >= 1 && size <= kLargest; };
  if (!fits(picture.width) || !fits(picture.height)) {
    Fail("{} draws pictures of {} x {} pixels; 1 to {} each way are possible", name, picture.width,
         picture.height, kLargest);
  }
  const std::size_t bytes = static_cast<std::size_t>(picture.width) * picture.height * 3;
  if (picture.rgb.size() != bytes) {
    Fail("{} draws pictures of {} x {} pixels with {} bytes, not {}", name, picture.width, picture.height,
         picture.rgb.size(), bytes);
  }
}

Picture Shrink(const Picture& picture, int width) {
  TRIREME_CHECK(width > 0 && picture.width > 0);
  if (picture.width <= width) return picture;
  Picture small;
  small.width = width;
  small.height =
      std::max(1, static_cast<int>(std::lround(static_cast<double>(picture.height) * width / picture.width)));
  small.rgb.resize(static_cast<std::size_t>(small.width) * small.height * 3);

  const std::vector<Cover> columns = Covers(picture.width, small.width);
  const std::vector<Cover> rows = Covers(picture.height, small.height);
  const std::size_t wide_stride = static_cast<std::size_t>(picture.width) * 3;
  std::vector<float> wide(wide_stride);  // a row of the result before its columns are joined
  for (int y = 0; y < small.height; ++y) {
    std::fill(wide.begin(), wide.end(), 0.0f);
    for (std::size_t k = 0; k < rows[y].share.size(); ++k) {
      const std::uint8_t* from = &picture.rgb[(rows[y].first + k) * wide_stride];
      for (std::size_t i = 0; i < wide_stride; ++i) wide[i] += rows[y].share[k] * from[i];
    }
    std::uint8_t* to = &small.rgb[static_cast<std::size_t>(y) * small.width * 3];
    for (const Cover& column : columns) {
      for (int channel = 0; channel < 3; ++channel) {
        float sum = 0;
        for (std::size_t k = 0; k < column.share.size(); ++k) {
          sum += column.share[k] * wide[(column.first + k) * 3 + channel];
        }
        *to++ = static_cast<std::uint8_t>(std::lround(std::clamp(sum, 0.0f, 255.0f)));
      }
    }
  }
  return small;
}

}  // namespace trireme
