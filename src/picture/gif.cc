// GIF: a picture is stored as the rectangle in which it differs from the one before, and there only pixels that
// differ are painted. Colours are exact as long as 255 are enough for the whole film, or for what changes from one
// picture to the next; else what changes is shown with 255 colours of its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/picture/lzw.h"
#include "trireme/picture/palette.h"
#include "trireme/picture/video.h"

namespace trireme {
namespace {

constexpr int kMostColours = 255;
constexpr std::uint8_t kTransparent = 255;
constexpr std::size_t kTableBytes = 3 * 256;
constexpr int kLongestDelay = 60'000;  // hundredths of a second; there is room for 65535

struct Rectangle {
  int left = 0, top = 0, width = 0, height = 0;
};

std::string Short(int value) { return {static_cast<char>(value & 255), static_cast<char>(value >> 8)}; }

std::string Table(const std::vector<Colour>& colours) {
  std::string table;
  for (const Colour& c : colours) {
    for (const std::uint8_t channel : {c.red, c.green, c.blue}) table += static_cast<char>(channel);
  }
  table.resize(kTableBytes);
  return table;
}

// Colours with their numbers.
class ExactColours {
 public:
  // All of these, or none when there is no room for them. Returns whether there was.
  bool Add(const std::vector<Colour>& colours) {
    const std::size_t before = colours_.size();
    for (const Colour& colour : colours) {
      if (!index_.try_emplace(Key(colour), static_cast<std::uint8_t>(colours_.size())).second) continue;
      colours_.push_back(colour);
      if (colours_.size() <= kMostColours) continue;
      for (std::size_t i = before; i < colours_.size(); ++i) index_.erase(Key(colours_[i]));
      colours_.resize(before);
      return false;
    }
    return true;
  }
  std::uint8_t IndexOf(Colour colour) const { return index_.at(Key(colour)); }
  const std::vector<Colour>& colours() const { return colours_; }

 private:
  static std::uint32_t Key(Colour c) { return std::uint32_t{c.red} << 16 | c.green << 8 | c.blue; }
  std::vector<Colour> colours_;
  std::unordered_map<std::uint32_t, std::uint8_t> index_;
};

class Gif final : public VideoEncoder {
 public:
  explicit Gif(double per_second) : per_second_(per_second) {}

  void Add(const Picture& picture) override {
    CheckPicture(picture, "the film");
    if (added_ > 0 && (picture.width != shown_.width || picture.height != shown_.height)) {
      Fail("a film of {} x {} pixels cannot take a picture of {} x {}", shown_.width, shown_.height,
           picture.width, picture.height);
    }
    const int delay = NextDelay();
    std::optional<Rectangle> changed = Changed(picture);
    if (!changed && delay_ + delay <= kLongestDelay) {  // the same picture for longer
      delay_ += delay;
      std::ranges::copy(Short(delay_), &frames_[delay_at_]);
      return;
    }
    AddFrame(picture, changed.value_or(Rectangle{0, 0, 1, 1}), delay);
    shown_ = picture;
  }

  std::string Finish() override {
    TRIREME_CHECK(added_ > 0);
    // A table of 256 colours of 8 bits; it is repeated for ever.
    return "GIF89a" + Short(shown_.width) + Short(shown_.height) + std::string("\xf7\0\0", 3) +
           Table(film_colours_.colours()) + std::string("\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0", 19) +
           frames_ + ';';
  }

 private:
  // Hundredths of a second, so that pictures do not drift away from their times.
  int NextDelay() {
    const auto time = [&](std::int64_t n) {
      return std::llround(100.0 * static_cast<double>(n) / per_second_);
    };
    const auto delay = time(added_ + 1) - time(added_);
    ++added_;
    return static_cast<int>(std::min<long long>(delay, kLongestDelay));
  }

  bool Same(const Picture& picture, int x, int y) const {
    return !frames_.empty() && picture.At(x, y) == shown_.At(x, y);
  }

  std::optional<Rectangle> Changed(const Picture& picture) const {
    if (frames_.empty()) return Rectangle{0, 0, picture.width, picture.height};
    const std::size_t stride = static_cast<std::size_t>(picture.width) * 3;
    int left = picture.width, right = -1, top = picture.height, bottom = -1;
    for (int y = 0; y < picture.height; ++y) {
      const std::span row(&picture.rgb[y * stride], stride), before(&shown_.rgb[y * stride], stride);
      const auto first = std::ranges::mismatch(row, before).in1;
      if (first == row.end()) continue;
      const auto last = std::mismatch(row.rbegin(), row.rend(), before.rbegin()).first;
      left = std::min(left, static_cast<int>(first - row.begin()) / 3);
      right = std::max(right, static_cast<int>(last.base() - row.begin() - 1) / 3);
      top = std::min(top, y);
      bottom = y;
    }
    if (right < 0) return std::nullopt;
    return Rectangle{left, top, right - left + 1, bottom - top + 1};
  }

  void AddFrame(const Picture& picture, const Rectangle& where, int delay) {
    std::vector<Colour> colours;  // of what is painted
    std::vector<bool> painted;
    for (int y = where.top; y < where.top + where.height; ++y) {
      for (int x = where.left; x < where.left + where.width; ++x) {
        painted.push_back(!Same(picture, x, y));
        if (painted.back()) colours.push_back(picture.At(x, y));
      }
    }
    std::string own_table;
    std::vector<std::uint8_t> indices = Indices(colours, own_table);
    std::vector<std::uint8_t> pixels;
    pixels.reserve(painted.size());
    for (auto index = indices.begin(); const bool paint : painted)
      pixels.push_back(paint ? *index++ : kTransparent);

    frames_ += std::string("\x21\xf9\x04\x05", 4);  // painted over what is there, with a transparent colour
    delay_at_ = frames_.size();
    delay_ = delay;
    frames_ += Short(delay) + std::string("\xff\0", 2);
    frames_ += ',' + Short(where.left) + Short(where.top) + Short(where.width) + Short(where.height);
    frames_ += own_table.empty() ? '\0' : '\x87';
    frames_ += own_table + '\x08' + LzwBlocks(pixels);
  }

  std::vector<std::uint8_t> Indices(const std::vector<Colour>& colours, std::string& own_table) {
    std::vector<std::uint8_t> indices(colours.size());
    const auto with = [&](const auto& palette) {
      std::ranges::transform(colours, indices.begin(),
                             [&](Colour c) { return static_cast<std::uint8_t>(palette.IndexOf(c)); });
      return indices;
    };
    if (film_colours_.Add(colours)) return with(film_colours_);
    if (ExactColours own; own.Add(colours)) {
      own_table = Table(own.colours());
      return with(own);
    }
    const Palette palette(colours, kMostColours);
    own_table = Table(palette.colours());
    return with(palette);
  }

  double per_second_;
  std::int64_t added_ = 0;
  Picture shown_;
  ExactColours film_colours_;
  std::string frames_;
  std::size_t delay_at_ = 0;  // of the last frame, in frames_
  int delay_ = 0;
};

}  // namespace

std::unique_ptr<VideoEncoder> MakeGif(double per_second) { return std::make_unique<Gif>(per_second); }

}  // namespace trireme
