#include "trireme/base/parse.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace trireme {
namespace {

constexpr int kLargestPower = 1000;  // of ten, far above what any integer type holds

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes a leading '+' and underscores between digits; nothing when the text is not the beginning of a
// number.
std::optional<std::string> PlainNumber(std::string_view text) {
  text = Trim(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || i + 1 == text.size() || !IsDigit(text[i - 1]) || !IsDigit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (plain.empty()) return std::nullopt;
  return plain;
}

}  // namespace

std::string_view TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

std::string_view Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<double> ParseDouble(std::string_view text) {
  const auto plain = PlainNumber(text);
  if (!plain) return std::nullopt;
  double value = 0;
  const char* end = plain->data() + plain->size();
  const auto [stop, error] = std::from_chars(plain->data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::string> ParseWholeDigits(std::string_view text) {
  const auto plain = PlainNumber(text);
  if (!plain) return std::nullopt;
  std::string_view rest = *plain;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);

  std::string digits;
  int exponent = 0;
  bool fraction = false;
  for (; !rest.empty() && (IsDigit(rest[0]) || (rest[0] == '.' && !fraction)); rest.remove_prefix(1)) {
    if (rest[0] == '.') {
      fraction = true;
    } else {
      digits += rest[0];
      exponent -= fraction ? 1 : 0;
    }
  }
  if (digits.empty()) return std::nullopt;
  if (!rest.empty()) {
    if (rest[0] != 'e' && rest[0] != 'E') return std::nullopt;
    rest.remove_prefix(rest.size() > 2 && rest[1] == '+' && IsDigit(rest[2]) ? 2 : 1);
    int power = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), power);
    if (error != std::errc() || stop != rest.data() + rest.size() || power > kLargestPower)
      return std::nullopt;
    exponent += power;
  }

  for (; exponent < 0 && digits.ends_with('0'); ++exponent) digits.pop_back();
  if (exponent < 0 && !digits.empty()) return std::nullopt;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return "0";
  digits.append(static_cast<std::size_t>(exponent), '0');
  return (negative ? "-" : "") + digits;
}

}  // namespace trireme
