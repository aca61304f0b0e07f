#include "trireme/base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "trireme/base/parse.h"
#include "trireme/base/text.h"
#include "trireme/base/toml_nesting.h"

// toml++ stays inside this file: it is a heavy header.
#include <toml++/toml.h>

namespace trireme {
namespace {

using Field = ConfigFields::Field;

constexpr std::string_view kNumberOr = "float or ";  // and what is written for none
constexpr std::uint64_t kLargestToml = std::numeric_limits<std::int64_t>::max();

template <class T>
std::string Join(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", value);
  return out;
}

std::string RangeText(const Range& range) {
  const bool has_low = std::isfinite(range.low), has_high = std::isfinite(range.high);
  if (has_low && has_high) {
    const char* note = range.high_excluded ? " (excluded)" : "";
    return fmt::format("from {}{} to {}{}", range.low, range.low_excluded ? " (excluded)" : "", range.high,
                       note);
  }
  if (has_low) return fmt::format("{} {}", range.low_excluded ? "above" : "at least", range.low);
  if (has_high) return fmt::format("{} {}", range.high_excluded ? "below" : "at most", range.high);
  return "";
}

// long double holds every 64-bit integer exactly.
bool Contains(const Range& range, long double value) {
  return (range.low_excluded ? value > range.low : value >= range.low) &&
         (range.high_excluded ? value < range.high : value <= range.high);
}

std::string WithRange(std::string_view what, const Range& range) {
  const std::string text = RangeText(range);
  return text.empty() ? std::string(what) : fmt::format("{} {}", what, text);
}

// Assigns a whole number; returns what was expected, or nothing on success.
template <class Int>
std::string AssignWhole(std::string_view text, const Range& range, Int& value) {
  const auto digits = ParseWholeDigits(text);
  if (!digits) return WithRange("a whole number", range);
  if (std::is_unsigned_v<Int> && digits->starts_with('-')) return "a whole number at least 0";
  Int parsed = 0;
  if (std::from_chars(digits->data(), digits->data() + digits->size(), parsed).ec != std::errc()) {
    using Limits = std::numeric_limits<Int>;
    return digits->starts_with('-') ? fmt::format("a whole number of at least {}", Limits::min())
                                    : fmt::format("a whole number of at most {}", Limits::max());
  }
  if (!Contains(range, static_cast<long double>(parsed))) return WithRange("a whole number", range);
  value = parsed;
  return "";
}

constexpr const char* kTextList = "a list of texts like [\"one\", \"two\"]";

// "[64, 64]" or "64,64"; "[]" is the empty list.
std::string AssignList(std::string_view text, const Range& each, std::vector<int>& value) {
  constexpr const char* expected = "a list of whole numbers like [64, 64]";
  text = Trim(text);
  const bool bracketed = text.starts_with('[');
  if (bracketed != text.ends_with(']') || text.empty() || text == "[") return expected;
  if (bracketed) text = Trim(text.substr(1, text.size() - 2));
  std::vector<int> parsed;
  while (!text.empty()) {
    const auto comma = text.find(',');
    int element = 0;
    const std::string wrong = AssignWhole(text.substr(0, comma), each, element);
    if (!wrong.empty()) return fmt::format("{}, each {}", expected, wrong);
    parsed.push_back(element);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (Trim(text).empty()) return expected;
  }
  value = std::move(parsed);
  return "";
}

std::string DoubleText(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // stays a float for a TOML reader
  return text;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Invalid UTF-8 cannot be saved in a TOML file, so it is refused as a value.
bool FitsToml(std::string_view text) {
  try {
    return !toml::parse("x = " + Quoted(text)).empty();
  } catch (const toml::parse_error&) {
    return false;
  }
}

// A list as TOML has it.
std::string AssignTexts(std::string_view text, std::vector<std::string>& value) {
  if (FindDeepToml(text)) return kTextList;
  try {
    const toml::table table = toml::parse(fmt::format("x = {}", text));
    const toml::array* array = table.size() == 1 ? table["x"].as_array() : nullptr;
    if (array == nullptr) return kTextList;
    std::vector<std::string> parsed;
    for (const toml::node& element : *array) {
      const auto* one = element.as_string();
      if (one == nullptr) return kTextList;
      parsed.push_back(one->get());
    }
    value = std::move(parsed);
    return "";
  } catch (const toml::parse_error&) {
    return kTextList;
  }
}

std::string Choices(const OneOf& names) { return fmt::format("one of {}", Join(names)); }
bool IsOneOf(std::string_view text, const OneOf& names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

// The text an assignment would use for this TOML value, or nothing when the value's type does not suit the
// field.
std::optional<std::string> TextForField(const toml::node& node, const Field& field) {
  const auto number = [](const toml::node& n) -> std::optional<std::string> {
    if (const auto* whole = n.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* real = n.as_floating_point()) return fmt::format("{}", real->get());
    return std::nullopt;
  };
  if (field.type == "bool") {
    if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  } else if (field.type == "text" || field.type == "choice") {
    if (const auto* value = node.as_string()) return value->get();
  } else if (field.type.ends_with(" list")) {
    const auto* array = node.as_array();
    if (!array) return std::nullopt;
    const auto quoted = [](const toml::node& n) -> std::optional<std::string> {
      if (const auto* value = n.as_string()) return Quoted(value->get());
      return std::nullopt;
    };
    std::vector<std::string> elements;
    for (const toml::node& element : *array) {
      const auto text = field.type == "int list" ? number(element) : quoted(element);
      if (!text) return std::nullopt;
      elements.push_back(*text);
    }
    return fmt::format("[{}]", Join(elements));
  } else {
    // TOML integers are signed: larger ones are written in quotes. So is the absence of a number.
    const bool in_quotes = field.type == "uint" || field.type.starts_with(kNumberOr);
    if (const auto* value = node.as_string(); value && in_quotes) return value->get();
    return number(node);
  }
  return std::nullopt;
}

// What the user wrote, for an error message.
std::string Given(const toml::node& node) {
  if (const auto* value = node.as_string()) return Quoted(value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* array = node.as_array()) {
    std::vector<std::string> elements;
    for (const toml::node& element : *array) elements.push_back(Given(element));
    return fmt::format("[{}]", Join(elements));
  }
  return node.is_table() ? "a table" : "a date or time";
}

std::string Place(const std::string& origin, const toml::source_position& at) {
  return fmt::format("{}:{}:{}", origin, at.line, at.column);
}

std::string DocWithAllowed(const Field& field) {
  return field.allowed.empty() ? field.doc : fmt::format("{} ({})", field.doc, field.allowed);
}

// Docs may contain '|', which would end a cell of a Markdown table.
std::string EscapeBars(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// toml++ explains some mistakes over several lines.
std::string OneLine(std::string_view text) {
  std::string out(text);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

// toml++ calls itself for every level of nesting, and a stack ends.
toml::table ParseToml(std::string_view text, const std::string& origin) {
  if (const auto deep = FindDeepToml(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*deep), '\n');
    Fail("{}:{}: brackets or dotted keys nest more than {} levels: settings are a plain list of key = value",
         origin, line, kDeepestToml);
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    Fail("{}: {}", Place(origin, error.source().begin), OneLine(error.description()));
  }
}

// What a field takes, when a value is not even of the right type.
std::string Expected(const Field& field) {
  if (field.type == "bool") return "true or false";
  if (field.type == "choice") return field.allowed;
  if (field.type == "int list") return "a list of whole numbers like [64, 64]";
  if (field.type == "text list") return kTextList;
  if (field.type == "text") return field.allowed.empty() ? "text in quotes" : field.allowed;
  if (field.type.starts_with(kNumberOr))
    return fmt::format("a number or {}", field.type.substr(kNumberOr.size()));
  const char* what = field.type == "float" ? "a number" : "a whole number";
  return field.allowed.empty() ? what : fmt::format("{} {}", what, field.allowed);
}

}  // namespace

ConfigFields::Field& ConfigFields::AddField(Field field) {
  const bool named = !field.name.empty();
  field.name.insert(0, prefix_);
  if (!named || field.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
    Fail("'{}' is no name for a setting: it needs letters from a to z, digits and _", field.name);
  }
  if (Has(field.name)) Fail("there is a setting '{}' already", field.name);
  field.default_text = field.get();
  if (!field.default_text.starts_with('"')) {
    if (const std::string expected = field.set(field.default_text); !expected.empty()) {
      Fail("{}: the default {} is not {}", field.name, field.default_text, expected);
    }
  }
  return fields_.emplace_back(std::move(field));
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, bool& value, std::string_view doc) {
  const auto set = [&value](std::string_view text) -> std::string {
    text = Trim(text);
    if (text != "true" && text != "false") return "true or false";
    value = text == "true";
    return "";
  };
  const auto get = [&value]() -> std::string { return value ? "true" : "false"; };
  return AddField({std::string(name), std::string(doc), "bool", "", "", get, set});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, int& value, std::string_view doc,
                                              Range range) {
  return AddField({std::string(name), std::string(doc), "int", RangeText(range), "",
                   [&value] { return fmt::format("{}", value); },
                   [&value, range](std::string_view text) { return AssignWhole(text, range, value); }});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::int64_t& value,
                                              std::string_view doc, Range range) {
  return AddField({std::string(name), std::string(doc), "int", RangeText(range), "",
                   [&value] { return fmt::format("{}", value); },
                   [&value, range](std::string_view text) { return AssignWhole(text, range, value); }});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::uint64_t& value,
                                              std::string_view doc, Range range) {
  const auto get = [&value] {
    const std::string digits = fmt::format("{}", value);
    return value > kLargestToml ? Quoted(digits) : digits;
  };
  return AddField({std::string(name), std::string(doc), "uint", RangeText(range), "", get,
                   [&value, range](std::string_view text) { return AssignWhole(text, range, value); }});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, double& value, std::string_view doc,
                                              Range range) {
  const auto set = [&value, range](std::string_view text) {
    const auto parsed = ParseDouble(text);
    if (!parsed || !Contains(range, *parsed)) return WithRange("a number", range);
    value = *parsed;
    return std::string();
  };
  return AddField({std::string(name), std::string(doc), "float", RangeText(range), "",
                   [&value] { return DoubleText(value); }, set});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::optional<double>& value,
                                              std::string_view doc, std::string_view absent) {
  const auto set = [&value, absent = std::string(absent)](std::string_view text) -> std::string {
    const auto parsed = ParseDouble(text);
    if (!parsed && Trim(text) != absent) return fmt::format("a number or {}", absent);
    value = parsed;
    return "";
  };
  const auto get = [&value, absent = Quoted(absent)] { return value ? DoubleText(*value) : absent; };
  return AddField(
      {std::string(name), std::string(doc), fmt::format("{}{}", kNumberOr, absent), "", "", get, set});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::vector<std::string>& value,
                                              std::string_view doc) {
  const auto get = [&value] {
    std::vector<std::string> elements(value.size());
    std::ranges::transform(value, elements.begin(), Quoted);
    return fmt::format("[{}]", Join(elements));
  };
  return AddField({std::string(name), std::string(doc), "text list", "", "", get,
                   [&value](std::string_view text) { return AssignTexts(text, value); }});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::vector<int>& value,
                                              std::string_view doc, Range each) {
  const std::string allowed = RangeText(each);
  return AddField({std::string(name), std::string(doc), "int list",
                   allowed.empty() ? "" : fmt::format("each {}", allowed), "",
                   [&value] { return fmt::format("[{}]", Join(value)); },
                   [&value, each](std::string_view text) { return AssignList(text, each, value); }});
}

ConfigFields::Field& ConfigFields::operator()(std::string_view name, std::string& value, std::string_view doc,
                                              OneOf allowed) {
  TRIREME_CHECK(allowed.empty() || IsOneOf(value, allowed));
  const std::string choices = allowed.empty() ? "" : Choices(allowed);
  const auto set = [&value, allowed = std::move(allowed)](std::string_view text) -> std::string {
    if (!FitsToml(text)) return "text in UTF-8";
    if (!allowed.empty() && !IsOneOf(text, allowed)) return Choices(allowed);
    value = text;
    return "";
  };
  return AddField(
      {std::string(name), std::string(doc), "text", choices, "", [&value] { return Quoted(value); }, set});
}

ConfigFields::Field& ConfigFields::AddChoice(std::string_view name, std::string_view doc, OneOf names,
                                             IndexGetter get, IndexSetter set) {
  const std::string choices = Choices(names);
  const auto get_text = [names, get = std::move(get)] {
    TRIREME_CHECK(get() < names.size());
    return Quoted(names[get()]);
  };
  const auto set_text = [names = std::move(names),
                         set = std::move(set)](std::string_view text) -> std::string {
    const auto found = std::find(names.begin(), names.end(), Trim(text));
    if (found == names.end()) return Choices(names);
    set(static_cast<std::size_t>(found - names.begin()));
    return "";
  };
  return AddField({std::string(name), std::string(doc), "choice", choices, "", get_text, set_text});
}

std::vector<std::string> ConfigFields::Names() const {
  std::vector<std::string> names;
  for (const Field& field : fields_) names.push_back(field.name);
  return names;
}

bool ConfigFields::Has(std::string_view name) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [name](const Field& field) { return field.name == name; });
}

const Field& ConfigFields::Find(std::string_view name, const std::string& origin) const {
  for (const Field& field : fields_) {
    if (field.name == name) return field;
  }
  Fail("{}: unknown setting '{}'.{}", origin, name, SuggestNearest(name, Names()));
}

std::string ConfigFields::Get(std::string_view name) const {
  TRIREME_CHECK(Has(name));
  return Find(name, "").get();
}

void ConfigFields::Set(std::string_view name, std::string_view text, const std::string& origin) {
  const std::string expected = Find(name, origin).set(text);
  if (!expected.empty()) Fail("{}: expected {}, not '{}'", origin, expected, text);
}

void ConfigFields::ApplyAssignment(std::string_view assignment, const std::string& origin) {
  const std::string place = fmt::format("{} {}", origin, assignment);
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) Fail("{}: expected key=value", place);
  const Field& field = Find(Trim(assignment.substr(0, equals)), place);
  const std::string expected = field.set(assignment.substr(equals + 1));
  if (!expected.empty()) Fail("{}: expected {}", place, expected);
}

void ConfigFields::ApplyToml(std::string_view text, const std::string& origin) {
  const toml::table table = ParseToml(text, origin);
  // toml++ sorts by name; the first mistake of the file should be the one reported.
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (auto&& [key, node] : table) entries.emplace_back(&key, &node);
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first->source().begin < b.first->source().begin; });
  for (const auto& [key, node] : entries) {
    const Field& field = Find(key->str(), Place(origin, key->source().begin));
    const auto value = TextForField(*node, field);
    const std::string expected = value ? field.set(*value) : Expected(field);
    if (!expected.empty()) {
      Fail("{}: {}: expected {}, not {}", Place(origin, node->source().begin), field.name, expected,
           Given(*node));
    }
  }
}

std::string ConfigFields::ToToml() const {
  std::string out;
  for (const Field& field : fields_) {
    out += fmt::format("# {}\n{} = {}\n", DocWithAllowed(field), field.name, field.get());
  }
  return out;
}

std::string ConfigFields::Help() const {
  std::size_t name = 0, type = 0, value = 0;
  for (const Field& field : fields_) {
    name = std::max(name, field.name.size());
    type = std::max(type, field.type.size());
    value = std::max(value, field.default_text.size());
  }
  std::string out;
  for (const Field& field : fields_) {
    out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}\n", field.name, name, field.type, type,
                       field.default_text, value, DocWithAllowed(field));
  }
  return out;
}

std::string ConfigFields::ToMarkdown() const {
  std::string out = "| setting | type | default | meaning |\n|---|---|---|---|\n";
  for (const Field& field : fields_) {
    out += fmt::format("| `{}` | {} | `{}` | {} |\n", field.name, field.type, field.default_text,
                       EscapeBars(DocWithAllowed(field)));
  }
  return out;
}

bool HasTomlKey(std::string_view text, std::string_view key, const std::string& origin) {
  return ParseToml(text, origin).contains(key);
}

std::string ReadTomlText(std::string_view text, std::string_view key, const std::string& origin) {
  const toml::table table = ParseToml(text, origin);
  const toml::node* const node = table.get(key);
  if (node == nullptr) return "";
  if (!node->is_string()) Fail("{}: {}: expected a text in quotes", Place(origin, node->source().begin), key);
  return node->value_or(std::string());
}

}  // namespace trireme
