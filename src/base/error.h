// Two kinds of failure, kept apart.
//
// Error is for what a user can cause and mend: bad settings, unreadable files, a full disk. It is thrown at
// the edges, carries one line that says what to do, and is caught in main().
//
// TRIREME_CHECK is for mistakes of ours. No input can trip it; if one does, that is a bug. It prints and aborts.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace trireme

#define TRIREME_CHECK(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::trireme::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
