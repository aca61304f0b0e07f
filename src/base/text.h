// Small text helpers.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

// " Did you mean 'x'?" for the candidate with the smallest edit distance to `word`, or "" when none is near.
std::string SuggestNearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace trireme
