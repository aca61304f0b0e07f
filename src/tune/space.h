// What a search may change: parameters with ranges and scales, made from the one field list that settings come from
// (base/config.h, Search), and narrowed or widened by a file (space_file.h).
//
// A parameter stands for a setting; a list of layers has two, `hidden_layers` and `hidden_width`. A value is a double:
// the number, or the index of a choice; NaN where the parameter does not count, because another one has the wrong value
// for it. The value of every parameter, in order, is a Point.
//
// Samplers see values as places between 0 and 1, so that they need not know of scales. A parameter with Levels() = n > 0 has
// n values with equal shares of the way: value k has its place in the middle of [k/n, (k+1)/n].
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {

struct Parameter {
  std::string name, setting;
  std::string doc = {};
  Search::Kind scale = Search::Kind::kLinear;  // kLayers: never, it is two parameters
  double low = 0, high = 0;
  bool whole = false;
  std::vector<std::string> choices = {};  // kChoices
  int parent = -1;                        // counts only where this one has one of parent_values; -1: always
  std::vector<int> parent_values = {};    // indices of its choices
  bool shapes = false;                    // a run cannot go on with another value

  bool categorical() const { return scale == Search::Kind::kChoices; }
  // How many values with equal shares it has; 0: any between low and high, rounded where it is whole.
  int Levels() const;
  // Requires a value of the parameter, and a place from 0 to 1.
  double ToUnit(double value) const;
  double FromUnit(double place) const;
  // As in an assignment: "0.003", "tanh".
  std::string Text(double value) const;
  // "log, 0.0001 to 0.01"
  std::string RangeText() const;
};

using Point = std::vector<double>;

class Space {
 public:
  Space() = default;
  // Requires parents before their children.
  explicit Space(std::vector<Parameter> parameters);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }
  bool empty() const { return parameters_.empty(); }
  // Whether parameter i counts, given the values of those before it.
  bool Counts(std::size_t i, std::span<const double> point) const;
  // What does not count becomes NaN. Requires as many values as parameters.
  void Tidy(Point& point) const;
  // The place of every parameter from the places in [0, 1), by FromUnit and Tidy.
  Point At(std::span<const double> places) const;

  // Writes the values into the settings. Throws Error.
  void Apply(const Point& point, ConfigFields& fields) const;
  // The point nearest to the settings as they are.
  Point Nearest(const ConfigFields& fields) const;
  // "learning_rate = 0.003, activation = tanh": what counts.
  std::string Describe(const Point& point) const;
  // One line for each parameter, aligned.
  std::string ToText() const;

 private:
  std::vector<Parameter> parameters_;
};

// One line of a space file: what it says of a setting.
struct SpaceEntry {
  std::string setting;
  std::string place;                      // for errors: "space.toml:3:1"
  std::optional<std::string> fixed = {};  // the setting has this value and is not searched
  std::optional<double> low = {}, high = {};
  std::string scale = {};  // linear, log, near_one, powers_of_two; empty: as it was
  std::vector<std::string> choices = {};
  std::optional<std::pair<double, double>> layers = {}, width = {};
  std::optional<std::pair<std::string, std::vector<std::string>>> when = {};
};

// What a space file says.
struct SpaceChanges {
  std::vector<SpaceEntry> entries = {};
  // Settings of the field list that are searched, each with the place that says so; empty: all that say how.
  std::vector<std::pair<std::string, std::string>> only = {};
  std::vector<std::pair<std::string, std::string>> leave = {};  // settings that are not searched
};

// The search of the settings in `fields`, where `held` were given a value by the user and are not searched. Fixed values
// of `changes` are written into `fields`, and so is, for a moment, whatever a range allows. Throws Error: unknown
// settings, ranges that are none, values that a setting does not take, a setting that is held and searched, nothing to
// search.
Space MakeSpace(ConfigFields& fields, const SpaceChanges& changes, std::span<const std::string> held);

}  // namespace trireme
