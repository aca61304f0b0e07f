// Line plots as self-contained SVG pictures: no scripts, no fonts or styles from elsewhere, a white
// background of their own so that they read the same on light and dark pages, and no element ids, so that
// several can be put into one HTML page. Colours come from the Okabe-Ito palette, which colour-blind people
// can tell apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct PlotSeries {
  std::string name;       // in the legend; unnamed series are not listed there
  std::vector<double> x;  // same length as y
  std::vector<double> y;  // NaN, infinite and absurdly large values leave a gap
  // Shaded band from low to high around the line: both empty, or both as long as y.
  std::vector<double> low = {};
  std::vector<double> high = {};
  bool markers = false;  // a dot at each point, as long as there is room for the dots
  bool faint = false;    // for noisy background data: thin and pale
};

// A dashed horizontal line.
struct PlotTarget {
  double y;
  std::string label;
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotSeries> series;
  std::optional<PlotTarget> target;
  int width = 760;  // pixels; at least 200
  int height = 400;

  // The picture as an <svg> element. Works for any data: without a point to draw it says so in the frame.
  // Long series are thinned to what the width can show, keeping the extremes.
  std::string ToSvg() const;
};

}  // namespace trireme
