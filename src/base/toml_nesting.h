// How deeply TOML text nests, before a parser that calls itself for every level sees it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace trireme {

// Brackets may lie in each other so deeply, and a dotted key may have so many dots. Settings need one level.
inline constexpr int kDeepestToml = 16;

// The offset in `text` of the first bracket or dot beyond that; nothing when all is shallow. Comments and
// what stands in quotes do not count. Takes one pass; any bytes will do.
std::optional<std::size_t> FindDeepToml(std::string_view text);

}  // namespace trireme
