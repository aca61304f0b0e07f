#include "trireme/env/args.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

// Digits after a sign, without a zero before others: 007 is a name rather than a number.
bool LooksLikeNumber(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && is_digit(text[0]) && !(text[0] == '0' && text.size() > 1 && is_digit(text[1]));
}

std::optional<EnvArgValue> ParseNumber(std::string_view text) {
  if (!LooksLikeNumber(text)) return std::nullopt;
  if (text.find_first_of(".eE") == std::string_view::npos) {
    const std::optional<std::string> digits = ParseWholeDigits(text);
    if (!digits) return std::nullopt;
    std::int64_t whole = 0;
    if (std::from_chars(digits->data(), digits->data() + digits->size(), whole).ec != std::errc()) {
      Fail("'{}' is too large for a whole number: put it in quotes if it is meant as text", text);
    }
    return whole;
  }
  if (const std::optional<double> number = ParseDouble(text)) return *number;
  return std::nullopt;
}

EnvArgValue ParseValue(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  if (trimmed == "null" || trimmed == "None") return std::monostate();
  if (trimmed == "true" || trimmed == "True") return true;
  if (trimmed == "false" || trimmed == "False") return false;
  if (const std::optional<EnvArgValue> number = ParseNumber(trimmed)) return *number;
  for (const char quote : {'"', '\''}) {
    if (trimmed.size() < 2 || !trimmed.starts_with(quote) || !trimmed.ends_with(quote)) continue;
    return std::string(trimmed.substr(1, trimmed.size() - 2));
  }
  return std::string(text);
}

struct ValueText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }
  std::string operator()(const std::string& value) const {
    const bool plain = [&] {
      try {
        return ParseValue(value) == EnvArgValue(value);
      } catch (const Error&) {
        return false;
      }
    }();
    return plain ? value : fmt::format("\"{}\"", value);
  }
};

}  // namespace

EnvArg ParseEnvArg(std::string_view assignment, std::string_view origin) {
  const std::size_t equals = assignment.find('=');
  const std::string_view key = Trim(assignment.substr(0, std::min(equals, assignment.size())));
  if (equals == std::string_view::npos || key.empty()) Fail("{} {}: expected key=value", origin, assignment);
  try {
    return {std::string(key), ParseValue(assignment.substr(equals + 1))};
  } catch (const Error& error) {
    Fail("{} {}: {}", origin, assignment, error.what());
  }
}

std::string EnvArgText(const EnvArg& arg) {
  return fmt::format("{}={}", arg.key, std::visit(ValueText(), arg.value));
}

EnvArgs ParseEnvArgs(std::span<const std::string> assignments, std::string_view origin) {
  EnvArgs args;
  for (const std::string& assignment : assignments) args.push_back(ParseEnvArg(assignment, origin));
  std::ranges::sort(args, {}, &EnvArg::key);
  const auto twice = std::ranges::adjacent_find(args, {}, &EnvArg::key);
  if (twice != args.end()) Fail("{} {}: it was given before: give each key once", origin, EnvArgText(*twice));
  return args;
}

}  // namespace trireme
