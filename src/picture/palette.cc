#include "trireme/picture/palette.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Pixels whose colours are not told apart.
struct Group {
  int bin = 0;
  std::int64_t pixels = 0;
  std::array<std::int64_t, 3> sum = {};

  double Mean(int channel) const { return static_cast<double>(sum[channel]) / static_cast<double>(pixels); }
};

// Neighbouring groups that are shown alike.
struct Box {
  std::size_t begin = 0, end = 0;  // among the groups
  std::int64_t pixels = 0;
  int longest = 0;    // channel
  double extent = 0;  // in that channel
  double weight() const { return extent * static_cast<double>(pixels); }
};

Box BoxOf(const std::vector<Group>& groups, std::size_t begin, std::size_t end) {
  Box box{.begin = begin, .end = end};
  for (std::size_t i = begin; i < end; ++i) box.pixels += groups[i].pixels;
  for (int channel = 0; channel < 3; ++channel) {
    const auto [low, high] = std::minmax_element(
        groups.begin() + static_cast<std::ptrdiff_t>(begin),
        groups.begin() + static_cast<std::ptrdiff_t>(end),
        [&](const Group& a, const Group& b) { return a.Mean(channel) < b.Mean(channel); });
    if (const double extent = high->Mean(channel) - low->Mean(channel); extent > box.extent) {
      box.extent = extent;
      box.longest = channel;
    }
  }
  return box;
}

// Where half of the pixels lie on either side, as nearly as groups allow.
std::size_t Middle(std::vector<Group>& groups, const Box& box) {
  std::stable_sort(groups.begin() + static_cast<std::ptrdiff_t>(box.begin),
                   groups.begin() + static_cast<std::ptrdiff_t>(box.end),
                   [&](const Group& a, const Group& b) { return a.Mean(box.longest) < b.Mean(box.longest); });
  std::size_t middle = box.begin + 1;
  std::int64_t before = groups[box.begin].pixels;
  for (; middle + 1 < box.end && 2 * before < box.pixels; ++middle) before += groups[middle].pixels;
  return middle;
}

}  // namespace

Palette::Palette(std::span<const Colour> pixels, int most) {
  TRIREME_CHECK(!pixels.empty() && most >= 1 && most <= 256);
  std::vector<Group> all(kBins);
  for (const Colour& pixel : pixels) {
    Group& group = all[Bin(pixel)];
    ++group.pixels;
    group.sum[0] += pixel.red;
    group.sum[1] += pixel.green;
    group.sum[2] += pixel.blue;
  }
  std::vector<Group> groups;
  for (int bin = 0; bin < kBins; ++bin) {
    if (all[bin].pixels == 0) continue;
    groups.push_back(all[bin]);
    groups.back().bin = bin;
  }

  std::vector<Box> boxes = {BoxOf(groups, 0, groups.size())};
  while (static_cast<int>(boxes.size()) < most) {
    const auto box = std::ranges::max_element(boxes, {}, &Box::weight);
    if (box->extent == 0) break;
    const std::size_t begin = box->begin, end = box->end, middle = Middle(groups, *box);
    *box = BoxOf(groups, begin, middle);
    boxes.push_back(BoxOf(groups, middle, end));
  }
  for (const Box& box : boxes) {
    std::array<std::int64_t, 3> sum = {};
    for (std::size_t i = box.begin; i < box.end; ++i) {
      for (int channel = 0; channel < 3; ++channel) sum[channel] += groups[i].sum[channel];
      index_[groups[i].bin] = static_cast<std::uint8_t>(colours_.size());
    }
    const auto mean = [&](int channel) {
      return static_cast<std::uint8_t>((sum[channel] + box.pixels / 2) / box.pixels);
    };
    colours_.push_back({mean(0), mean(1), mean(2)});
  }
}

}  // namespace trireme
