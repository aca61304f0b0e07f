#include "trireme/metrics/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "trireme/metrics/markup.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Data lines are the only paths without a fill.
std::size_t CountLines(const std::string& svg) { return Count(svg, "fill=\"none\""); }

std::vector<std::string> PathData(const std::string& svg) {
  const std::string start = " d=\"";
  std::vector<std::string> all;
  for (auto at = svg.find(start); at != std::string::npos; at = svg.find(start, at)) {
    at += start.size();
    all.push_back(svg.substr(at, svg.find('"', at) - at));
  }
  return all;
}

// Balanced tags, closed quotes, only numbers as coordinates, and all of them inside the picture.
void ExpectSoundPicture(const std::string& svg, int width, int height) {
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_FALSE(Contains(svg, "=\"nan"));
  EXPECT_FALSE(Contains(svg, "=\"inf"));
  EXPECT_FALSE(Contains(svg, "=\"-inf"));
  EXPECT_FALSE(Contains(svg, " id="));
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
  EXPECT_EQ(Count(svg, "\"") % 2, 0u);
  const std::regex point(R"re([ML](-?[0-9.]+) (-?[0-9.]+))re");
  for (const std::string& data : PathData(svg)) {
    EXPECT_EQ(std::regex_replace(data, point, ""), data.back() == 'Z' ? "Z" : "");
    for (std::sregex_iterator p(data.begin(), data.end(), point), end; p != end; ++p) {
      const double x = std::stod((*p)[1]);
      const double y = std::stod((*p)[2]);
      EXPECT_TRUE(x >= 0 && x <= width && y >= 0 && y <= height) << x << " " << y;
    }
  }
}

std::string Draw(std::vector<double> x, std::vector<double> y) {
  LinePlot plot{"title", "steps", "return", {{"a", std::move(x), std::move(y)}}, {}};
  const std::string svg = plot.ToSvg();
  ExpectSoundPicture(svg, plot.width, plot.height);
  return svg;
}

TEST(Plot, TitleLabelsLegendAndLine) {
  const std::string svg = Draw({0, 50'000, 100'000}, {0, 200, 500});
  for (const char* text : {">title<", ">steps<", ">return<", ">a<", ">20k<", ">500<"})
    EXPECT_TRUE(Contains(svg, text));
  EXPECT_EQ(CountLines(svg), 1u);
  EXPECT_TRUE(Contains(svg, "<rect width=\"760\" height=\"400\" rx=\"6\" fill=\"#ffffff\"/>"));
}

TEST(Plot, EmptyPlotSaysSo) {
  EXPECT_TRUE(Contains(Draw({}, {}), ">no data<"));
  EXPECT_TRUE(Contains(Draw({1, 2}, {kNan, kInf}), ">no data<"));
  EXPECT_TRUE(Contains(LinePlot{}.ToSvg(), ">no data<"));
  LinePlot only_target;
  only_target.target = {475, "target 475"};
  EXPECT_TRUE(Contains(only_target.ToSvg(), ">no data<"));
}

TEST(Plot, OnePointIsADot) {
  const std::string svg = Draw({10}, {5});
  EXPECT_EQ(Count(svg, "<circle"), 1u);
  EXPECT_EQ(CountLines(svg), 0u);
}

TEST(Plot, ConstantSeriesIsInTheMiddle) {
  const std::string svg = Draw({0, 1}, {500, 500});
  std::smatch match;
  ASSERT_TRUE(std::regex_search(svg, match, std::regex("M[0-9.]+ ([0-9.]+)L[0-9.]+ ([0-9.]+)\"")));
  EXPECT_EQ(match[1], match[2]);
  EXPECT_GT(std::stod(match[1]), 100);
  EXPECT_LT(std::stod(match[1]), 300);
}

TEST(Plot, NanLeavesAGapAndLonePointsADot) {
  const std::string svg = Draw({0, 1, 2, 3, 4, 5, 6}, {1, 2, kNan, 3, kInf, 4, 5});
  EXPECT_EQ(CountLines(svg), 2u);
  EXPECT_EQ(Count(svg, "<circle"), 1u);
}

TEST(Plot, HugeRangesAndStrangeValuesStayInside) {
  Draw({0, 1, 2}, {-1e300, 0, 1e300});
  Draw({0, 1, 2}, {1e308, -1e308, 3});
  Draw({-1e300, 1e300}, {1e-310, -1e-310});
  Draw({5, 5, 5}, {1, 2, 3});
  Draw({3, 1, 2}, {1, 2, 3});
  EXPECT_TRUE(Contains(Draw({kNan, 1}, {1, 1}), "<circle"));
}

TEST(Plot, TargetLineIsInsideEvenFarFromTheData) {
  LinePlot plot{"", "", "", {{"", {0, 1}, {0, 1}}}, PlotTarget{475, "target <475>"}};
  const std::string svg = plot.ToSvg();
  ExpectSoundPicture(svg, plot.width, plot.height);
  EXPECT_TRUE(Contains(svg, "stroke-dasharray"));
  EXPECT_TRUE(Contains(svg, ">target &lt;475&gt;<"));
  EXPECT_TRUE(Contains(svg, ">400<"));
  plot.target->y = kNan;
  EXPECT_FALSE(Contains(plot.ToSvg(), "stroke-dasharray"));
}

TEST(Plot, BandsAreShadedAndBrokenAtGaps) {
  PlotSeries series{"a", {0, 1, 2, 3, 4}, {1, 2, 3, 4, 5}};
  series.low = {0, 1, kNan, 3, 4};
  series.high = {2, 3, kNan, 5, 60};
  LinePlot plot{"", "", "", {series}, {}};
  const std::string svg = plot.ToSvg();
  ExpectSoundPicture(svg, plot.width, plot.height);
  EXPECT_EQ(Count(svg, "fill-opacity"), 2u);
  EXPECT_EQ(CountLines(svg), 1u);
}

TEST(Plot, MarkersOnlyWhereThereIsRoom) {
  PlotSeries series{"", {}, {}};
  series.markers = true;
  for (int i = 0; i < 20; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 3);
  }
  EXPECT_EQ(Count(LinePlot{"", "", "", {series}, {}}.ToSvg(), "<circle"), 20u);
  for (int i = 20; i < 2000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 3);
  }
  EXPECT_EQ(Count(LinePlot{"", "", "", {series}, {}}.ToSvg(), "<circle"), 0u);
}

TEST(Plot, LongSeriesAreThinnedButKeepTheirExtremes) {
  std::vector<double> x;
  std::vector<double> y;
  for (int i = 0; i < 200'000; ++i) {
    x.push_back(i);
    y.push_back(i == 123'456 ? 1000 : i % 7);
  }
  const std::string svg = Draw(x, y);
  EXPECT_LT(svg.size(), 80'000u);
  // The spike is the highest point of the picture: 6 % margin of the range below the top of the frame.
  double highest = 1e9;
  const std::regex point("L[0-9.]+ ([0-9.]+)");
  for (std::sregex_iterator p(svg.begin(), svg.end(), point), end; p != end; ++p) {
    highest = std::min(highest, std::stod((*p)[1]));
  }
  EXPECT_LT(highest, 100);
}

TEST(Plot, EightSeriesHaveEightColoursAndALegendThatWraps) {
  LinePlot plot;
  for (int i = 0; i < 8; ++i) {
    plot.series.push_back({"a rather long name of series " + std::to_string(i), {0, 1}, {0, 1.0 * i}});
  }
  const std::string svg = plot.ToSvg();
  std::set<std::string> colours;
  const std::regex stroke("fill=\"none\" stroke=\"(#[0-9a-f]+)\"");
  for (std::sregex_iterator m(svg.begin(), svg.end(), stroke), end; m != end; ++m) colours.insert((*m)[1]);
  EXPECT_EQ(colours.size(), 8u);
  const std::regex legend("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" fill=\"#1f2933\">a rather");
  std::set<std::string> rows;
  for (std::sregex_iterator m(svg.begin(), svg.end(), legend), end; m != end; ++m) {
    EXPECT_LT(std::stod((*m)[1]) + 200, plot.width);
    rows.insert((*m)[2]);
  }
  EXPECT_EQ(rows.size(), 4u);
}

TEST(Plot, TextIsEscaped) {
  LinePlot plot{"<script>\"&'", "<x>", "<y>", {{"</svg>", {0, 1}, {0, 1}}}, {}};
  const std::string svg = plot.ToSvg();
  EXPECT_EQ(Count(svg, "</svg>"), 1u);
  for (const char* raw : {"<script>", "<x>", "<y>"}) EXPECT_FALSE(Contains(svg, raw));
  EXPECT_TRUE(Contains(svg, "&lt;script&gt;&quot;&amp;&#39;"));
}

TEST(PlotDeathTest, SeriesOfUnequalLength) {
  const LinePlot plot{"", "", "", {{"a", {0, 1}, {0}}}, {}};
  EXPECT_DEATH(plot.ToSvg(), "CHECK");
}

TEST(EscapeMarkup, KeepsUtf8AndReplacesWhatXmlForbids) {
  EXPECT_EQ(EscapeMarkup("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeMarkup("tab\tline\n ± – €𝄞"), "tab\tline\n ± – €𝄞");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(EscapeMarkup(std::string("\x01\0", 2)), bad + bad);
  EXPECT_EQ(EscapeMarkup("\xff"), bad);
  EXPECT_EQ(EscapeMarkup("\xc3"), bad);                      // cut short
  EXPECT_EQ(EscapeMarkup("\xc3<"), bad + "&lt;");            // must not swallow the next character
  EXPECT_EQ(EscapeMarkup("\xc0\xbc"), bad + bad);            // overlong '<'
  EXPECT_EQ(EscapeMarkup("\xed\xa0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(EscapeMarkup("\xef\xbf\xbf"), bad + bad + bad);  // U+FFFF
}

}  // namespace
}  // namespace trireme
