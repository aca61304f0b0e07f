#include "trireme/env/gym/python.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "trireme/base/error.h"

extern char** environ;

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where it is a path: hosts work in another folder, maybe.
std::string Absolute(const std::string& program) {
  return program.find('/') == std::string::npos ? program : fs::absolute(program).string();
}

void Run(std::vector<std::string> command) {
  std::vector<char*> pointers;
  pointers.reserve(command.size() + 1);
  for (std::string& text : command) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  int status = 0;
  if (const int error = ::posix_spawnp(&pid, pointers[0], nullptr, nullptr, pointers.data(), environ);
      error != 0) {
    Fail("cannot start {}: {}", command[0], std::strerror(error));
  }
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    std::string line;
    for (const std::string& text : command) line += (line.empty() ? "" : " ") + text;
    Fail("this has failed: {}", line);
  }
}

}  // namespace

std::string PythonHome() {
  const std::string data = Variable("XDG_DATA_HOME");
  return (data.empty() ? fs::path(Variable("HOME")) / ".local/share" : fs::absolute(data)) / "trireme/python";
}

Python FindPython(const std::string& chosen) {
  const auto own = [](const std::string& program) { return Python{program, program + " -m pip install"}; };
  if (!chosen.empty()) return own(chosen);
  if (const std::string named = Variable("TRIREME_PYTHON"); !named.empty()) return own(Absolute(named));
  if (const std::string active = Variable("VIRTUAL_ENV"); !active.empty())
    return own(Absolute(active + "/bin/python"));
  const std::string made = PythonHome() + "/bin/python";
  if (::access(made.c_str(), X_OK) == 0) return own(made);
  return {"python3", "trireme setup python"};
}

void SetUpPython() {
  const std::string home = PythonHome(), python = home + "/bin/python";
  if (::access(python.c_str(), X_OK) != 0) Run({"python3", "-m", "venv", home});
  Run({python, "-m", "pip", "install", "--disable-pip-version-check", "gymnasium>=1.0", "numpy"});
}

}  // namespace trireme
