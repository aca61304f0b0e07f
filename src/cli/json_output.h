// Standard output for one line of JSON and nothing else, whatever plug-ins and libraries print there.
#pragma once

#include <string>

namespace trireme {

// If `active`, standard output leads to standard error from now on, until the program ends, for everybody but Print.
class JsonOutput {
 public:
  explicit JsonOutput(bool active);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  // Requires that it is active. Writes the text and the end of the line; throws Error when that fails.
  void Print(const std::string& json) const;

 private:
  int descriptor_ = -1;  // standard output as it was
};

}  // namespace trireme
