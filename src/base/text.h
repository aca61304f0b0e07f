// Small text helpers.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

// " Did you mean 'x'?" for the candidate with the smallest edit distance to `word`, or "" when none is near.
std::string SuggestNearest(std::string_view word, std::span<const std::string> candidates);

// `text` as it may go to a terminal or a log, whoever wrote it: control characters and bytes that are not
// UTF-8 become "\\x1b".
std::string Printable(std::string_view text);

}  // namespace trireme
