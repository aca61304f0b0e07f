// What SyncRounds keeps in the notes of a part: names, and numbers as bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

inline constexpr const char* kRoundNote = "update";  // what the last round gave besides parameters
inline constexpr const char* kCollectNote = "collect";
inline constexpr const char* kBoundaryNote = "boundary";  // the last open one, and what was brought there

// A count, and the numbers.
template <class T>
void AppendNumbers(std::string& note, std::span<const T> values) {
  const std::uint64_t count = values.size();
  note.append(reinterpret_cast<const char*>(&count), sizeof count);
  if (count > 0) note.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}
// Takes them off the front. Throws Error: files may hold anything.
template <class T>
std::vector<T> CutNumbers(std::string_view& note) {
  std::uint64_t count = 0;
  const bool counted = note.size() >= sizeof count;
  if (counted) {
    std::memcpy(&count, note.data(), sizeof count);
    note.remove_prefix(sizeof count);
  }
  if (!counted || note.size() / sizeof(T) < count) {
    Fail("the notes of a part are damaged: put back a copy of its folder, or remove it to begin anew");
  }
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), note.data(), count * sizeof(T));
  note.remove_prefix(count * sizeof(T));
  return values;
}

}  // namespace trireme
