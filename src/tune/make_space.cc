// From the field list and a file to the space of a search.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "trireme/base/text.h"
#include "trireme/tune/space.h"

namespace trireme {
namespace {

using Kind = Search::Kind;

// What trials are compared by must be the same for all of them.
constexpr const char* kSameForAll[] = {"env",        "env_args",      "algo",           "store",
                                       "steps",      "seed",          "target",         "stop_at_target",
                                       "eval_every", "eval_episodes", "eval_max_steps", "checkpoint_every_s"};

const ConfigFields::Field& FieldOf(const ConfigFields& fields, const std::string& name,
                                   const std::string& place) {
  const auto found = std::ranges::find(fields.fields(), name, &ConfigFields::Field::name);
  if (found == fields.fields().end())
    Fail("{}: unknown setting '{}'.{}", place, name, SuggestNearest(name, fields.Names()));
  if (std::ranges::find(kSameForAll, name) != std::end(kSameForAll))
    Fail("{}: {} must be the same in all trials, which are compared by it: give it to the command", place,
         name);
  return *found;
}

bool IsWhole(const ConfigFields::Field& field) { return field.type == "int" || field.type == "uint"; }
bool IsNumber(const ConfigFields::Field& field) { return IsWhole(field) || field.type.starts_with("float"); }

Kind ScaleOf(const SpaceEntry& entry) {
  constexpr std::pair<const char*, Kind> names[] = {{"linear", Kind::kLinear},
                                                    {"log", Kind::kLog},
                                                    {"near_one", Kind::kNearOne},
                                                    {"powers_of_two", Kind::kPowersOfTwo}};
  for (const auto& [name, kind] : names) {
    if (entry.scale == name) return kind;
  }
  Fail("{}: scale: expected linear, log, near_one or powers_of_two, not '{}'", entry.place, entry.scale);
}

// How a setting is searched after what a file says of it.
Search Changed(const ConfigFields::Field& field, const SpaceEntry& entry) {
  Search search = field.search.value_or(Search{.shapes = true});  // nobody has said that it may change
  if (entry.when) {
    search.when = entry.when->first;
    search.when_values = entry.when->second;
  }
  const bool range = entry.low || entry.high || !entry.scale.empty();
  const int ways = range + !entry.choices.empty() + (entry.layers || entry.width);
  if (ways > 1)
    Fail("{}: {}: choose one of low and high, choices, layers and width", entry.place, entry.setting);
  if (!entry.choices.empty()) {
    search.kind = Kind::kChoices;
    search.choices = entry.choices;
  } else if (entry.layers || entry.width) {
    if (search.kind != Kind::kLayers && !(entry.layers && entry.width))
      Fail("{}: {}: say both layers = [fewest, most] and width = [least, most]", entry.place, entry.setting);
    search.kind = Kind::kLayers;
    if (entry.layers) std::tie(search.low, search.high) = *entry.layers;
    if (entry.width) std::tie(search.least_width, search.most_width) = *entry.width;
  } else if (range) {
    if (!IsNumber(field))
      Fail("{}: {} is no number: it is searched by choices{}", entry.place, entry.setting,
           field.type == "int list" ? ", or by layers and width" : "");
    const bool has_range = field.search && field.search->kind != Kind::kChoices;
    if (!has_range && !(entry.low && entry.high))
      Fail("{}: {}: say low and high", entry.place, entry.setting);
    if (!has_range) search.kind = Kind::kLinear;
    if (!entry.scale.empty()) search.kind = ScaleOf(entry);
    search.low = entry.low.value_or(search.low);
    search.high = entry.high.value_or(search.high);
  } else if (!field.search && !entry.when) {
    Fail("{}: {}: say low and high, choices, or layers and width", entry.place, entry.setting);
  } else if (!field.search) {
    Fail("{}: {}: say not only when but what it may be", entry.place, entry.setting);
  }
  return search;
}

class Maker {
 public:
  Maker(ConfigFields& fields, const SpaceChanges& changes, std::span<const std::string> held)
      : fields_(fields), changes_(changes), held_(held.begin(), held.end()) {}

  Space Make() {
    CheckNames();
    for (const SpaceEntry& entry : changes_.entries) {
      if (entry.fixed)
        fields_.Set(entry.setting, *entry.fixed, fmt::format("{}: {}", entry.place, entry.setting));
    }
    for (const ConfigFields::Field& field : fields_.fields()) Add(field);
    Order();
    if (parameters_.empty())
      Fail("there is nothing to search: no setting has a range, or all were left out or given a value");
    return Space(std::move(parameters_));
  }

 private:
  void CheckNames() const {
    const auto check = [&](const std::string& name, const std::string& place) {
      FieldOf(fields_, name, place);
      if (held_.contains(name))
        Fail("{}: {} was given a value on the command line too: say it once", place, name);
    };
    std::set<std::string> seen;
    for (const SpaceEntry& entry : changes_.entries) {
      check(entry.setting, entry.place);
      if (!seen.insert(entry.setting).second)
        Fail("{}: {} is there twice: say it once", entry.place, entry.setting);
    }
    for (const auto& [name, place] : changes_.only) {
      check(name, place);
      const bool described =
          std::ranges::find(changes_.entries, name, &SpaceEntry::setting) != changes_.entries.end();
      if (!FieldOf(fields_, name, place).search && !described)
        Fail("{}: {} says no range of its own: give it low and high, or choices", place, name);
    }
    for (const auto& [name, place] : changes_.leave) {
      check(name, place);
      if (!seen.insert(name).second)
        Fail("{}: {} is left out, and described too: say one of them", place, name);
    }
  }

  void Add(const ConfigFields::Field& field) {
    const auto entry = std::ranges::find(changes_.entries, field.name, &SpaceEntry::setting);
    const bool described = entry != changes_.entries.end();
    const auto names = [&](const auto& list) {
      return std::ranges::any_of(list, [&](const auto& item) { return item.first == field.name; });
    };
    if (held_.contains(field.name) || (described && entry->fixed) || names(changes_.leave)) return;
    if (!described && (!field.search || (!changes_.only.empty() && !names(changes_.only)))) return;
    const std::string place = described ? entry->place : "the range of " + field.name;
    const Search search = described ? Changed(field, *entry) : *field.search;
    if (!search.when.empty()) conditions_.push_back({field.name, place, search.when, search.when_values});
    if (search.kind == Kind::kLayers) {
      AddLayers(field, search, place);
    } else {
      AddOne(field, search, place);
    }
  }

  void AddLayers(const ConfigFields::Field& field, const Search& search, const std::string& place) {
    if (field.type != "int list") Fail("{}: {} is no list of layers", place, field.name);
    const Parameter layers{.name = field.name + "_layers",
                           .setting = field.name,
                           .doc = "hidden layers",
                           .scale = Kind::kLinear,
                           .low = search.low,
                           .high = search.high,
                           .whole = true,
                           .shapes = true};
    const Parameter width{.name = field.name + "_width",
                          .setting = field.name,
                          .doc = field.doc,
                          .scale = Kind::kPowersOfTwo,
                          .low = search.least_width,
                          .high = search.most_width,
                          .whole = true,
                          .shapes = true};
    for (const Parameter* parameter : {&layers, &width}) CheckRange(*parameter, place, true);
    if (search.low < 1) Fail("{}: {}: expected at least 1 layer, not {}", place, field.name, search.low);
    for (const double size : {width.low, width.high})
      Try(field, fmt::format("[{}]", width.Text(size)), place);
    parameters_.push_back(layers);
    parameters_.push_back(width);
  }

  void AddOne(const ConfigFields::Field& field, const Search& search, const std::string& place) {
    Parameter parameter{.name = field.name,
                        .setting = field.name,
                        .doc = field.doc,
                        .scale = search.kind,
                        .low = search.low,
                        .high = search.high,
                        .whole = IsWhole(field),
                        .shapes = search.shapes};
    if (search.kind == Kind::kChoices) {
      parameter.low = parameter.high = 0;
      parameter.whole = false;
      parameter.choices = search.choices;
      std::set<std::string> seen;
      for (const std::string& choice : search.choices) {
        if (!seen.insert(choice).second) Fail("{}: {}: {} is there twice", place, field.name, choice);
        Try(field, choice, place);
      }
      if (seen.size() < 2)
        Fail("{}: {}: one choice is none: write {} = value to keep it", place, field.name, field.name);
    } else {
      parameter.whole = parameter.whole || search.kind == Kind::kPowersOfTwo;
      CheckRange(parameter, place, IsWhole(field));
      Try(field, parameter.Text(parameter.low), place);
      Try(field, parameter.Text(parameter.high), place);
    }
    parameters_.push_back(std::move(parameter));
  }

  static void CheckRange(const Parameter& parameter, const std::string& place, bool whole) {
    const auto [low, high] = std::pair(parameter.low, parameter.high);
    if (!std::isfinite(low) || !std::isfinite(high) || low > high)
      Fail("{}: {}: the range from {} to {} is upside down or endless", place, parameter.name, low, high);
    if (low == high)
      Fail("{}: {}: the range from {} to {} holds one value: write {} = {} to keep it", place, parameter.name,
           low, high, parameter.setting, low);
    if (whole && (low != std::round(low) || high != std::round(high) || high > 1e9))
      Fail("{}: {}: expected whole numbers up to 1e9, not {} to {}", place, parameter.name, low, high);
    if (parameter.scale == Kind::kLog && low <= 0)
      Fail("{}: {}: a log scale begins above 0, not at {}", place, parameter.name, low);
    if (parameter.scale == Kind::kNearOne && (high >= 1 || parameter.whole))
      Fail("{}: {}: near_one is for numbers below 1, not up to {}", place, parameter.name, high);
    const auto is_power = [](double x) { return x >= 1 && std::log2(x) == std::round(std::log2(x)); };
    if (parameter.scale == Kind::kPowersOfTwo && !(is_power(low) && is_power(high)))
      Fail("{}: {}: expected powers of two, not {} to {}", place, parameter.name, low, high);
  }

  // Throws unless the setting takes the value, and leaves the setting as it was.
  static void Try(const ConfigFields::Field& field, const std::string& text, const std::string& place) {
    const std::string before = Unquoted(field.get());
    const std::string expected = field.set(text);
    if (!expected.empty()) Fail("{}: {}: expected {}, not {}", place, field.name, expected, text);
    TRIREME_CHECK(field.set(before).empty());
  }

  // Conditions become parents, which come first; those on settings that are not searched are decided at once.
  void Order() {
    const auto index = [&](const std::string& name) {
      const auto found = std::ranges::find(parameters_, name, &Parameter::name);
      return found == parameters_.end() ? -1 : static_cast<int>(found - parameters_.begin());
    };
    std::vector<std::string> parents_first;
    for (const Condition& condition : conditions_) {
      const ConfigFields::Field& parent = FieldOf(fields_, condition.on, condition.place);
      const int at = index(condition.on);
      if (at < 0) {
        const std::string value = Unquoted(parent.get());
        if (std::ranges::find(condition.values, value) == condition.values.end())
          std::erase_if(parameters_, [&](const Parameter& p) { return p.setting == condition.setting; });
        continue;
      }
      if (!parameters_[at].categorical() || parameters_[at].setting == condition.setting)
        Fail("{}: {}: when = \"{} = ...\" needs another setting that is searched by choices, or not at all",
             condition.place, condition.setting, condition.on);
      parents_first.push_back(condition.on);
    }
    std::stable_partition(parameters_.begin(), parameters_.end(), [&](const Parameter& p) {
      return std::ranges::find(parents_first, p.name) != parents_first.end();
    });
    for (const Condition& condition : conditions_) {
      const int at = index(condition.on);
      if (at < 0) continue;
      std::vector<int> values;
      for (const std::string& value : condition.values) {
        const auto& choices = parameters_[at].choices;
        const auto found = std::ranges::find(choices, value);
        if (found != choices.end()) values.push_back(static_cast<int>(found - choices.begin()));
      }
      if (values.empty())
        Fail("{}: {}: {} is never {}", condition.place, condition.setting, condition.on,
             fmt::join(condition.values, " or "));
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i].setting != condition.setting) continue;
        if (at >= static_cast<int>(i))
          Fail("{}: {} and {} cannot both depend on others", condition.place, condition.setting,
               condition.on);
        parameters_[i].parent = at;
        parameters_[i].parent_values = values;
      }
    }
  }

  struct Condition {
    std::string setting, place, on;
    std::vector<std::string> values;
  };

  ConfigFields& fields_;
  const SpaceChanges& changes_;
  std::set<std::string> held_;
  std::vector<Parameter> parameters_;
  std::vector<Condition> conditions_;
};

}  // namespace

Space MakeSpace(ConfigFields& fields, const SpaceChanges& changes, std::span<const std::string> held) {
  return Maker(fields, changes, held).Make();
}

}  // namespace trireme
