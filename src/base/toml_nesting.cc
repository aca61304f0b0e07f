#include "trireme/base/toml_nesting.h"

#include <algorithm>

namespace trireme {
namespace {

// `at` is that of an opening quote; returns the offset behind the string. One that is not closed ends with
// its line, or, in three quotes, with the text: a parser gets no further either.
std::size_t SkipString(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"';
  const std::string_view rest = text.substr(at);
  const bool multiline = rest.size() >= 3 && rest[1] == quote && rest[2] == quote;
  for (at += multiline ? 3 : 1; at < text.size(); ++at) {
    if (escapes && text[at] == '\\') {
      ++at;
    } else if (!multiline && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else if (multiline && text.substr(at, 3) == std::string_view(rest.data(), 3)) {
      // Up to two quotes more are the end of the content.
      at += 3;
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

}  // namespace

std::optional<std::size_t> FindDeepToml(std::string_view text) {
  int depth = 0, dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '#':
        at = std::min(text.find('\n', at), text.size()) - 1;
        break;
      case '"':
      case '\'':
        at = SkipString(text, at) - 1;
        break;
      case '[':
      case '{':
        dots = 0;
        if (++depth > kDeepestToml) return at;
        break;
      case ']':
      case '}':
        depth = std::max(0, depth - 1);
        break;
      case '.':
        if (++dots > kDeepestToml) return at;
        break;
      case '=':
      case ',':
      case '\n':
        dots = 0;
        break;
      default:
        break;
    }
  }
  return std::nullopt;
}

}  // namespace trireme
