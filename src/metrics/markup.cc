#include "trireme/metrics/markup.h"

#include <cstddef>

namespace trireme {
namespace {

// Length of the valid UTF-8 sequence of several bytes at the start of `text`; 0 if there is none.
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool beyond_unicode = lead == 0xf4 && byte(1) >= 0x90;
  const bool forbidden_in_xml = lead == 0xef && byte(1) == 0xbf && byte(2) >= 0xbe;
  return overlong || surrogate || beyond_unicode || forbidden_in_xml ? 0 : length;
}

// A character that XML allows and that is one byte.
bool IsPlain(unsigned char c) { return (c >= 0x20 && c < 0x80) || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char c = text.front();
    std::size_t used = 1;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (IsPlain(c)) {
      out += c;
    } else if (const std::size_t length = SequenceLength(text)) {
      out += text.substr(0, length);
      used = length;
    } else {
      out += kReplacement;
    }
    text.remove_prefix(used);
  }
  return out;
}

}  // namespace trireme
