// Which Python runs the environments.
#pragma once

#include <string>

namespace trireme {

struct Python {
  std::string program;
  std::string install;  // the command that installs packages for it, without their names
};

// In this order: `chosen`, TRIREME_PYTHON, that of the virtual environment that is active, that which `trireme setup
// python` has made, and python3. Starts nothing.
Python FindPython(const std::string& chosen);

// Where `trireme setup python` makes its virtual environment.
std::string PythonHome();

// Makes it, with Gymnasium. Prints what pip does. Throws Error.
void SetUpPython();

}  // namespace trireme
