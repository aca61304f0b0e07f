// Text made safe for HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Escapes & < > " ' for element content and quoted attributes. Control characters that XML forbids and bytes
// that are not UTF-8 become U+FFFD, so the result is well-formed whatever comes in.
std::string EscapeMarkup(std::string_view text);

}  // namespace trireme
