#include "trireme/tune/space_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"
#include "trireme/base/toml_nesting.h"

// toml++ is a heavy header, and stays inside this file.
#include <toml++/toml.h>

namespace trireme {
namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& origin) : origin_(origin) {
    if (const auto deep = FindDeepToml(text))
      Fail("{}: brackets nest too deeply: a space is a plain list of settings", origin);
    try {
      table_ = toml::parse(text);
    } catch (const toml::parse_error& error) {
      std::string what(error.description());
      std::ranges::replace(what, '\n', ' ');
      Fail("{}: {}", Place(error.source().begin), what);
    }
  }

  SpaceChanges Read() const {
    SpaceChanges changes;
    for (auto&& [key, node] : table_) {
      const std::string name(key.str());
      if (name == "only" || name == "leave") {
        for (const std::string& setting : Texts(node, name))
          (name == "only" ? changes.only : changes.leave).emplace_back(setting, Place(node.source().begin));
        if (name == "only" && changes.only.empty())
          Fail("{}: only: an empty list leaves nothing to search", Place(node.source().begin));
      } else {
        changes.entries.push_back(Entry(name, node));
      }
    }
    return changes;
  }

 private:
  std::string Place(const toml::source_position& at) const {
    return fmt::format("{}:{}:{}", origin_, at.line, at.column);
  }

  SpaceEntry Entry(const std::string& name, const toml::node& node) const {
    SpaceEntry entry{.setting = name, .place = Place(node.source().begin)};
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      entry.fixed = Text(node, name);
      return entry;
    }
    for (auto&& [key, value] : *table) {
      const std::string what(key.str());
      if (what == "low" || what == "high") {
        (what == "low" ? entry.low : entry.high) = Number(value, name + "." + what);
      } else if (what == "scale") {
        entry.scale = Text(value, name + ".scale");
      } else if (what == "choices") {
        entry.choices = Texts(value, name + ".choices");
        if (entry.choices.empty()) Fail("{}: {}: choices is empty", entry.place, name);
      } else if (what == "layers" || what == "width") {
        (what == "layers" ? entry.layers : entry.width) = Pair(value, name + "." + what);
      } else if (what == "when") {
        entry.when = Condition(value, name);
      } else {
        Fail("{}: {}: expected low, high, scale, choices, layers, width or when, not {}",
             Place(key.source().begin), name, what);
      }
    }
    return entry;
  }

  // As in an assignment.
  std::string Text(const toml::node& node, const std::string& what) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
    if (const auto* list = node.as_array()) {
      std::vector<std::string> parts;
      for (const toml::node& part : *list) {
        if (part.is_array()) Fail("{}: {}: a list in a list is no value", Place(part.source().begin), what);
        parts.push_back(Text(part, what));
      }
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    Fail("{}: {}: expected a number, text, true, false or a list", Place(node.source().begin), what);
  }

  double Number(const toml::node& node, const std::string& what) const {
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number) Fail("{}: {}: expected a number", Place(node.source().begin), what);
    return *number;
  }

  std::vector<std::string> Texts(const toml::node& node, const std::string& what) const {
    const toml::array* list = node.as_array();
    if (list == nullptr) Fail("{}: {}: expected a list", Place(node.source().begin), what);
    std::vector<std::string> texts;
    for (const toml::node& element : *list) texts.push_back(Text(element, what));
    return texts;
  }

  std::pair<double, double> Pair(const toml::node& node, const std::string& what) const {
    const toml::array* list = node.as_array();
    if (list == nullptr || list->size() != 2)
      Fail("{}: {}: expected two numbers like [1, 3]", Place(node.source().begin), what);
    return {Number(*list->get(0), what), Number(*list->get(1), what)};
  }

  std::pair<std::string, std::vector<std::string>> Condition(const toml::node& node,
                                                             const std::string& name) const {
    const std::string text = Text(node, name + ".when");
    const std::size_t equals = text.find('=');
    std::vector<std::string> values;
    std::string_view rest = equals == std::string::npos ? "" : std::string_view(text).substr(equals + 1);
    while (!Trim(rest).empty()) {
      const std::size_t bar = std::min(rest.find('|'), rest.size());
      values.emplace_back(Trim(rest.substr(0, bar)));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    if (values.empty() || Trim(std::string_view(text).substr(0, equals)).empty())
      Fail("{}: {}: when: expected \"setting = value\", not \"{}\"", Place(node.source().begin), name, text);
    return {std::string(Trim(std::string_view(text).substr(0, equals))), values};
  }

  const std::string& origin_;
  toml::table table_;
};

}  // namespace

SpaceChanges ReadSpaceFile(std::string_view text, const std::string& origin) {
  return Reader(text, origin).Read();
}

}  // namespace trireme
