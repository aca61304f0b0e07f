// The Python that tests run environments with: the one in the build folder, which scripts/python-env makes where packages
// can be had, or what TRIREME_TEST_PYTHON names. Tests that miss a package are shown as skipped:
//
//   if (const std::string missing = MissingInTests("numpy"); !missing.empty()) GTEST_SKIP() << missing;
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace trireme {

inline const std::string& TestPython() {
  static const std::string python = [] {
    const char* const chosen = std::getenv("TRIREME_TEST_PYTHON");
    return std::string(chosen == nullptr ? TRIREME_BUILT_PYTHON : chosen);
  }();
  return python;
}

// Why a test that needs this module cannot run; empty: it can. Not for several threads at once.
inline std::string MissingInTests(const std::string& module) {
  constexpr const char* kHow = " (scripts/python-env makes it)";
  const std::string& python = TestPython();
  if (::access(python.c_str(), X_OK) != 0) return "there is no " + python + kHow;
  static std::map<std::string, bool> known;
  const auto [entry, is_new] = known.emplace(module, false);
  if (is_new) {
    entry->second = std::system((python + " -c 'import " + module + "' >/dev/null 2>&1").c_str()) == 0;
  }
  return entry->second ? "" : python + " has no " + module + kHow;
}

}  // namespace trireme
