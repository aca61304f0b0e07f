// Text to lines and numbers; numbers strictly: the whole text must be the number, nothing wraps and nothing is rounded in
// silence. Surrounding blanks, a leading '+' and underscores between digits are allowed: " 1_000_000 ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// The text without blanks at both ends.
std::string_view Trim(std::string_view text);

// Takes the first line, without its end, off the front of `text`. Empty where no line ends: then nothing is
// taken.
std::string_view TakeLine(std::string_view& text);

// A finite number, or nothing: NaN, infinity and what a double cannot hold are refused.
std::optional<double> ParseDouble(std::string_view text);

// A whole number of any size as plain decimal digits, after '-' if it is negative: "1.5e3" gives "1500". It
// works on the digits, so that no rounding makes a fraction look whole or changes a large number. Nothing
// otherwise.
std::optional<std::string> ParseWholeDigits(std::string_view text);

}  // namespace trireme
