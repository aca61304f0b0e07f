// Settings: one field list per config struct drives its defaults, TOML files, `--set key=value`, `--help` and
// docs.
//
//   struct PpoConfig {
//     int epochs = 4;
//     double learning_rate = 3e-4;
//     void Fields(ConfigFields& field) {
//       field("epochs", epochs, "passes over each batch of experience", AtLeast(1));
//       field("learning_rate", learning_rate, "initial step size", Positive());
//     }
//   };
//   ConfigFields fields;
//   fields.Add(run_config);   // several structs share one flat namespace
//   fields.Add(ppo_config);
//   fields.ApplyToml(ReadFile("x.toml"), "x.toml");
//   fields.ApplyAssignment("epochs=8", "--set");
//
// ConfigFields keeps references: a struct added to it must outlive it and must not move. Its values at the
// time of Add are the defaults. Add throws Error for a name that is taken or not made of a-z, 0-9 and _, and for
// a default outside its own range: fields may be those of somebody else's environment.
//
// Every Apply throws Error, naming the place, the setting, what was expected and what was given; settings
// that came before the bad one are then already applied. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

// The values a number may take; for a list, each of its elements. NaN and infinity never belong to it.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  bool high_excluded = false;
};
inline Range AtLeast(double low) { return {.low = low}; }
inline Range AtMost(double high) { return {.high = high}; }
inline Range Between(double low, double high) { return {.low = low, .high = high}; }  // both included
inline Range Above(double low) { return {.low = low, .low_excluded = true}; }
inline Range Positive() { return Above(0); }
inline Range NonNegative() { return AtLeast(0); }
inline Range UnitInterval() { return Between(0, 1); }  // probabilities, discounts: both ends included
inline Range BelowOne() { return {.low = 0, .high = 1, .high_excluded = true}; }  // decay rates: [0, 1)

// The allowed values of a text setting; empty allows any text.
using OneOf = std::vector<std::string>;

// An enum setting is described by a table: constexpr EnumName<Activation> kActivationNames[] = {{"tanh",
// ...}};
template <class E>
struct EnumName {
  std::string_view name;
  E value;
};

// How `trireme tune` searches a setting unless a file says otherwise (tune/space.h): declared beside the field.
//
//   field("learning_rate", learning_rate, "initial step size", Positive()).Tune(Search::Log(1e-4, 1e-2));
struct Search {
  enum class Kind {
    kLinear,       // low to high; of a whole number every one between them
    kLog,          // the same, where ratios count: both are above 0
    kNearOne,      // ratios of 1 - value count: both are below 1
    kPowersOfTwo,  // whole numbers
    kChoices,      // texts as in an assignment, without an order
    kLayers,       // a list: `low` to `high` layers of one width, a power of two between the two widths
  };
  Kind kind = Kind::kLinear;
  double low = 0, high = 0;
  std::vector<std::string> choices = {};
  double least_width = 0, most_width = 0;
  // Only where another setting has one of these values; no name: always.
  std::string when = {};
  std::vector<std::string> when_values = {};
  bool shapes =
      false;  // another value is another network, or another kind of experience: a run cannot go on with it

  static Search Linear(double low, double high) { return {Kind::kLinear, low, high}; }
  static Search Log(double low, double high) { return {Kind::kLog, low, high}; }
  static Search NearOne(double low, double high) { return {Kind::kNearOne, low, high}; }
  static Search PowersOfTwo(double low, double high) { return {Kind::kPowersOfTwo, low, high}; }
  static Search Choices(std::vector<std::string> texts) { return {Kind::kChoices, 0, 0, std::move(texts)}; }
  static Search TrueOrFalse() { return Choices({"false", "true"}); }
  static Search Layers(double fewest, double most, double least_width, double most_width) {
    return {Kind::kLayers, fewest, most, {}, least_width, most_width};
  }
  Search When(std::string setting, std::vector<std::string> values) && {
    when = std::move(setting);
    when_values = std::move(values);
    return std::move(*this);
  }
  Search Shapes() && {
    shapes = true;
    return std::move(*this);
  }
};

// A value as TOML, as it stands in an assignment.
inline std::string Unquoted(const std::string& toml) {
  return toml.size() >= 2 && toml.starts_with('"') ? toml.substr(1, toml.size() - 2) : toml;
}

class ConfigFields {
 public:
  // What --help and the docs show of one setting. Texts of values are TOML.
  struct Field {
    std::string name;
    std::string doc;
    std::string type;     // bool, int, uint, float, float or NAME, text, choice, int list, text list
    std::string allowed;  // "at least 1", "one of tanh, relu", or empty
    std::string default_text;
    std::function<std::string()> get;  // the current value
    // Parses and assigns; returns what was expected ("a number above 0") or, on success, nothing.
    std::function<std::string(std::string_view)> set;
    std::optional<Search> search = {};  // nothing: tuning leaves it alone

    void Tune(Search how) { search = std::move(how); }
  };

  // With a prefix, "env_", the names of this struct have it in front.
  template <class Config>
  void Add(Config& config, std::string_view prefix = "") {
    const std::string before = prefix_;
    prefix_ += prefix;
    config.Fields(*this);
    prefix_ = before;
  }

  // For use inside Fields(). What they return is good until the next call.
  Field& operator()(std::string_view name, bool& value, std::string_view doc);
  Field& operator()(std::string_view name, int& value, std::string_view doc, Range range = {});
  Field& operator()(std::string_view name, std::int64_t& value, std::string_view doc, Range range = {});
  Field& operator()(std::string_view name, std::uint64_t& value, std::string_view doc, Range range = {});
  Field& operator()(std::string_view name, double& value, std::string_view doc, Range range = {});
  // A number or nothing, which is written as the text `absent`.
  Field& operator()(std::string_view name, std::optional<double>& value, std::string_view doc,
                    std::string_view absent);
  Field& operator()(std::string_view name, std::vector<int>& value, std::string_view doc, Range each = {});
  Field& operator()(std::string_view name, std::vector<std::string>& value, std::string_view doc);
  Field& operator()(std::string_view name, std::string& value, std::string_view doc, OneOf allowed = {});
  template <class E>
  requires std::is_enum_v<E> Field& operator()(std::string_view name, E& value, std::string_view doc,
                                               std::type_identity_t<std::span<const EnumName<E>>> table);

  // Top-level `key = value` pairs. `origin` names the file in errors: "x.toml:3:7: ...".
  void ApplyToml(std::string_view text, const std::string& origin);
  // "key=value". `origin` is what the user typed before it, for example "--set".
  void ApplyAssignment(std::string_view assignment, const std::string& origin);
  // One value written as in an assignment. Errors start with `origin`, for example "--seed".
  void Set(std::string_view name, std::string_view text, const std::string& origin);

  // The settings as they stand, each with its doc as a comment. Reading it back gives exactly the same
  // values.
  std::string ToToml() const;
  // An aligned table of name, type, default and doc.
  std::string Help() const;
  std::string ToMarkdown() const;

  const std::vector<Field>& fields() const { return fields_; }
  std::vector<std::string> Names() const;
  bool Has(std::string_view name) const;
  // The current value of a setting as TOML; requires Has(name).
  std::string Get(std::string_view name) const;

 private:
  using IndexGetter = std::function<std::size_t()>;
  using IndexSetter = std::function<void(std::size_t)>;

  Field& AddChoice(std::string_view name, std::string_view doc, OneOf names, IndexGetter get,
                   IndexSetter set);
  Field& AddField(Field field);
  const Field& Find(std::string_view name, const std::string& origin) const;

  std::vector<Field> fields_;  // in the order they were added
  std::string prefix_;         // of those that are being added
};

// The text value of one top-level key of a TOML file, or "" where it is absent: to learn what a file is about before its
// other keys can be understood. Throws Error for a syntax error, and where the value is no text.
std::string ReadTomlText(std::string_view text, std::string_view key, const std::string& origin);
// Whether a TOML file has a top-level key. Throws Error for a syntax error.
bool HasTomlKey(std::string_view text, std::string_view key, const std::string& origin);

template <class E>
requires std::is_enum_v<E> ConfigFields::Field& ConfigFields::operator()(
    std::string_view name, E& value, std::string_view doc,
    std::type_identity_t<std::span<const EnumName<E>>> table) {
  OneOf names;
  for (const EnumName<E>& row : table) names.emplace_back(row.name);
  const auto get = [&value, table] {
    std::size_t i = 0;
    while (i < table.size() && table[i].value != value) ++i;
    return i;
  };
  return AddChoice(name, doc, std::move(names), get,
                   [&value, table](std::size_t i) { value = table[i].value; });
}

}  // namespace trireme
