#include <fmt/format.h>

#include <filesystem>
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
    // Without a home it would be wherever the program was started.
    if (!std::filesystem::path(PythonHome()).is_absolute()) {
      Fail("there is no home folder to install into: set HOME, or XDG_DATA_HOME, to the path of a folder");
    }
    SetUpPython();
    fmt::print("ready: {} runs environments gym:NAME unless another virtual environment is active\n",
               PythonHome());
    return 0;
  };
}

}  // namespace trireme
