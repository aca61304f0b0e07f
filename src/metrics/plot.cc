#include "trireme/metrics/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/metrics/axis.h"
#include "trireme/metrics/markup.h"

namespace trireme {
namespace {

constexpr std::array kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#e69f00", "#56b4e9", "#7a5c00", "#444444"};
constexpr const char* kInk = "#1f2933";
constexpr const char* kMutedInk = "#52606d";
constexpr const char* kGrid = "#e4e7eb";
constexpr const char* kFrame = "#9aa5b1";
constexpr double kCharWidth = 6.8;  // of 12 px text, on the generous side
constexpr double kLegendRow = 20;

bool Plottable(double value) { return std::abs(value) <= kLargestPlottable; }  // false for NaN

double TextWidth(std::string_view text) {
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return kCharWidth * static_cast<double>(std::count_if(text.begin(), text.end(), starts_character));
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Point {
  double x;
  double y;
};

// Keeps the first, lowest, highest and last point of each pixel column: the picture stays the same.
std::vector<Point> ThinToPixels(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (std::size_t begin = 0, end; begin < points.size(); begin = end) {
    const double column = std::floor(points[begin].x);
    for (end = begin + 1; end < points.size() && std::floor(points[end].x) == column;) ++end;
    std::array<std::size_t, 4> pick = {begin, begin, begin, end - 1};
    for (std::size_t i = begin; i < end; ++i) {
      if (points[i].y < points[pick[1]].y) pick[1] = i;
      if (points[i].y > points[pick[2]].y) pick[2] = i;
    }
    std::sort(pick.begin(), pick.end());
    const auto last = std::unique(pick.begin(), pick.end());
    for (auto i = pick.begin(); i != last; ++i) kept.push_back(points[*i]);
  }
  return kept;
}

std::string PathOf(const std::vector<Point>& points, bool close = false) {
  std::string path;
  for (const Point& p : points) path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", p.x, p.y);
  if (close) path += "Z";
  return path;
}

// Draws one plot: the layout is settled in the constructor, then the parts are appended from back to front.
class Drawing {
 public:
  explicit Drawing(const LinePlot& plot);
  std::string Finish() &&;

 private:
  struct Box {
    double left, top, right, bottom;
  };

  double X(double value) const { return box_.left + (box_.right - box_.left) * x_axis_.Fraction(value); }
  double Y(double value) const { return box_.bottom - (box_.bottom - box_.top) * y_axis_.Fraction(value); }
  const char* Colour(std::size_t i) const { return kPalette[i % kPalette.size()]; }

  void MeasureData();
  // Draws the legend with its first row at `top`; returns the height it takes.
  double DrawLegend(double top);
  void DrawTitles();
  void DrawAxes();
  void DrawBand(std::size_t i);
  void DrawLine(std::size_t i);
  void DrawTarget();

  template <class... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }

  const LinePlot& plot_;
  Range x_range_;
  Range y_range_;
  Axis x_axis_;
  Axis y_axis_;
  Box box_;
  std::string svg_;
};

Drawing::Drawing(const LinePlot& plot) : plot_(plot) {
  TRIREME_CHECK(plot.width >= 200 && plot.height >= 120);
  MeasureData();
  Put(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" )"
      R"(aria-label="{2}" font-family="system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif" )"
      R"(font-size="12">)",
      plot.width, plot.height, EscapeMarkup(plot.title));
  Put(R"(<rect width="{}" height="{}" rx="6" fill="#ffffff"/>)", plot.width, plot.height);

  y_axis_ = MakeAxis(y_range_.low, y_range_.high, 0.06, std::max(3, plot.height / 45));
  double label_width = 0;
  for (const Tick& tick : y_axis_.ticks) label_width = std::max(label_width, TextWidth(tick.label));
  const double top = plot.title.empty() ? 14 : 38;
  box_.left = 16 + label_width + (plot.y_label.empty() ? 0 : 20);
  box_.right = plot.width - 26;
  box_.top = top + DrawLegend(top) + 4;
  box_.bottom = plot.height - (plot.x_label.empty() ? 30 : 50);
  x_axis_ = MakeAxis(x_range_.low, x_range_.high, 0, std::max(3, plot.width / 100));
}

void Drawing::MeasureData() {
  for (const PlotSeries& series : plot_.series) {
    TRIREME_CHECK(series.x.size() == series.y.size());
    TRIREME_CHECK(series.low.size() == series.high.size() &&
                  (series.low.empty() || series.low.size() == series.y.size()));
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!Plottable(series.x[i]) || !Plottable(series.y[i])) continue;
      x_range_.Include(series.x[i]);
      y_range_.Include(series.y[i]);
      if (series.low.empty() || !Plottable(series.low[i]) || !Plottable(series.high[i])) continue;
      y_range_.Include(series.low[i]);
      y_range_.Include(series.high[i]);
    }
  }
  if (plot_.target && Plottable(plot_.target->y) && !y_range_.empty()) y_range_.Include(plot_.target->y);
  // Steps and seconds start at zero: show it unless that would squeeze the data.
  if (!x_range_.empty() && x_range_.low > 0 && x_range_.low < 0.3 * x_range_.high) x_range_.low = 0;
}

double Drawing::DrawLegend(double top) {
  constexpr double kSwatch = 24;
  double x = box_.left;
  double row = top;
  bool any = false;
  for (std::size_t i = 0; i < plot_.series.size(); ++i) {
    const PlotSeries& series = plot_.series[i];
    if (series.name.empty()) continue;
    const double width = kSwatch + TextWidth(series.name) + 18;
    if (x + width > box_.right && x > box_.left) {
      x = box_.left;
      row += kLegendRow;
    }
    const double middle = row + 6;
    Put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{}" opacity="{}"/>)",
        x, middle, x + 18, middle, Colour(i), series.faint ? 2.0 : 2.5, series.faint ? 0.55 : 1.0);
    if (series.markers) Put(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)", x + 9, middle, Colour(i));
    Put(R"(<text x="{:.1f}" y="{:.1f}" fill="{}">{}</text>)", x + kSwatch, middle + 4, kInk,
        EscapeMarkup(series.name));
    x += width;
    any = true;
  }
  return any ? row - top + kLegendRow : 0;
}

void Drawing::DrawTitles() {
  if (!plot_.title.empty()) {
    Put(R"(<text x="{:.1f}" y="24" fill="{}" font-size="15" font-weight="600">{}</text>)", box_.left, kInk,
        EscapeMarkup(plot_.title));
  }
  if (!plot_.x_label.empty()) {
    Put(R"(<text x="{:.1f}" y="{}" fill="{}" text-anchor="middle">{}</text>)", (box_.left + box_.right) / 2,
        plot_.height - 12, kMutedInk, EscapeMarkup(plot_.x_label));
  }
  if (!plot_.y_label.empty()) {
    Put(R"svg(<text transform="translate(18 {:.1f}) rotate(-90)" fill="{}" text-anchor="middle">{}</text>)svg",
        (box_.top + box_.bottom) / 2, kMutedInk, EscapeMarkup(plot_.y_label));
  }
}

void Drawing::DrawAxes() {
  for (const Tick& tick : y_axis_.ticks) {
    const double y = Y(tick.value);
    Put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", box_.left, y, box_.right, y,
        kGrid);
    Put(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" text-anchor="end">{}</text>)", box_.left - 8, y + 4,
        kMutedInk, tick.label);
  }
  for (const Tick& tick : x_axis_.ticks) {
    const double x = X(tick.value);
    Put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", x, box_.bottom, x,
        box_.bottom + 5, kFrame);
    Put(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" text-anchor="middle">{}</text>)", x, box_.bottom + 19,
        kMutedInk, tick.label);
  }
  Put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", box_.left, box_.bottom,
      box_.right, box_.bottom, kFrame);
}

void Drawing::DrawBand(std::size_t i) {
  const PlotSeries& series = plot_.series[i];
  std::vector<Point> upper;
  std::vector<Point> lower;
  const auto flush = [&] {
    if (upper.size() > 1) {
      std::vector<Point> outline = ThinToPixels(upper);
      const std::vector<Point> back = ThinToPixels(lower);
      outline.insert(outline.end(), back.rbegin(), back.rend());
      Put(R"(<path d="{}" fill="{}" fill-opacity="0.15"/>)", PathOf(outline, /*close=*/true), Colour(i));
    }
    upper.clear();
    lower.clear();
  };
  for (std::size_t k = 0; k < series.low.size(); ++k) {
    if (Plottable(series.x[k]) && Plottable(series.y[k]) && Plottable(series.low[k]) &&
        Plottable(series.high[k])) {
      upper.push_back({X(series.x[k]), Y(series.high[k])});
      lower.push_back({X(series.x[k]), Y(series.low[k])});
    } else {
      flush();
    }
  }
  flush();
}

void Drawing::DrawLine(std::size_t i) {
  const PlotSeries& series = plot_.series[i];
  const double room_for_markers = (box_.right - box_.left) / 9;
  const bool markers = series.markers && static_cast<double>(series.x.size()) <= room_for_markers;
  std::vector<Point> run;  // points between two gaps
  const auto flush = [&] {
    if (run.size() > 1) {
      Put(R"(<path d="{}" fill="none" stroke="{}" stroke-width="{}" opacity="{}" stroke-linejoin="round" )"
          R"(stroke-linecap="round"/>)",
          PathOf(ThinToPixels(run)), Colour(i),
          series.faint        ? 1.2
          : plot_.width < 600 ? 1.6
                              : 2.2,
          series.faint ? 0.55 : 1.0);
    }
    if (markers || run.size() == 1) {
      for (const Point& p : run) {
        Put(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.2" fill="{}" stroke="#ffffff"/>)", p.x, p.y, Colour(i));
      }
    }
    run.clear();
  };
  for (std::size_t k = 0; k < series.x.size(); ++k) {
    if (Plottable(series.x[k]) && Plottable(series.y[k])) {
      run.push_back({X(series.x[k]), Y(series.y[k])});
    } else {
      flush();
    }
  }
  flush();
}

void Drawing::DrawTarget() {
  if (!plot_.target || !Plottable(plot_.target->y)) return;
  const double y = Y(plot_.target->y);
  Put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="1.4" )"
      R"(stroke-dasharray="6 4"/>)",
      box_.left, y, box_.right, y, kInk);
  // At the left, where learning curves are usually far from their target; the halo keeps it readable anyway.
  Put(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" stroke="#ffffff" stroke-width="3" paint-order="stroke">{}</text>)",
      box_.left + 8, y - 6, kInk, EscapeMarkup(plot_.target->label));
}

std::string Drawing::Finish() && {
  DrawTitles();
  DrawAxes();
  if (x_range_.empty()) {
    Put(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" text-anchor="middle">no data</text>)",
        (box_.left + box_.right) / 2, (box_.top + box_.bottom) / 2, kMutedInk);
  } else {
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawBand(i);
    DrawTarget();
    // Pale lines first, so that they never hide the others.
    for (const bool faint : {true, false}) {
      for (std::size_t i = 0; i < plot_.series.size(); ++i) {
        if (plot_.series[i].faint == faint) DrawLine(i);
      }
    }
  }
  svg_ += "</svg>\n";
  return std::move(svg_);
}

}  // namespace

std::string LinePlot::ToSvg() const { return Drawing(*this).Finish(); }

}  // namespace trireme
