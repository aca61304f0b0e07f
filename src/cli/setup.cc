#include <fmt/format.h>

#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/env/gym/python.h"

namespace trireme {

Command AddSetupCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("setup", "Install what is optional: `trireme setup python`");
  auto what = std::make_shared<std::string>();
  command.RequiredOption("what", *what,
                         "python: a virtual environment with Gymnasium, for environments gym:NAME");
  return [what] {
    if (*what != "python") Fail("there is nothing called '{}' to set up: say trireme setup python", *what);
    SetUpPython();
    fmt::print("ready: {} runs environments gym:NAME unless another virtual environment is active\n",
               PythonHome());
    return 0;
  };
}

}  // namespace trireme
