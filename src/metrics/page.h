// The frame of a page for people: complete in itself, light or dark as the browser likes. Its style knows .tiles with .tile, .card (also
// around an <svg>), .grid, .strip, .verdict, .note, tables and <pre>.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Both are HTML already.
std::string HtmlPage(std::string_view title, std::string_view body);
// A value with its caption below it; plain texts.
std::string HtmlTile(std::string_view value, std::string_view caption);

}  // namespace trireme
