// Which process wrote something, and whether it still lives: an id alone may have been given to another one since.
#pragma once

#include <optional>
#include <string>

namespace trireme {

struct ProcessId {
  std::string host;  // the machine since it was started, and who counts processes there
  int pid = 0;
  long long started = 0;  // clock ticks after the start of the machine

  static ProcessId OfThis();
  // Nothing: it is none.
  static std::optional<ProcessId> Parse(const std::string& json);
  std::string ToJson() const;

  bool OnThisHost() const;
  // Requires OnThisHost().
  bool Lives() const;
};

}  // namespace trireme
