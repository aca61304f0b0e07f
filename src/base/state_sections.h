// Some sections of a saved state (state.h) that is too large to be read whole.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>

namespace trireme {

using KeepSection = std::function<bool(std::string_view name)>;
inline bool KeepAll(std::string_view) { return true; }
inline bool KeepNone(std::string_view) { return false; }

// From the next `bytes` of `in`, which StateWriter::Encode made, those sections that `keep` wants, encoded alike; the
// others are skipped. Throws Error when it is malformed or cannot be read.
std::string PickSections(std::istream& in, std::uint64_t bytes, const KeepSection& keep);

}  // namespace trireme
