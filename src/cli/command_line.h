// The command line: a program, its commands and their options. CLI11 does the work, in command_line.cc alone, because
// including it takes longer to compile than a command does.
//
// Options are given before Parse, which fills in what was typed and leaves the rest alone; values must live until then.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme {

// What was typed cannot be understood.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CommandLine {
 public:
  // The program; `version` is what --version prints.
  CommandLine(const std::string& name, const std::string& about, const std::string& version);
  ~CommandLine();

  CommandLine& AddCommand(const std::string& name, const std::string& about);
  // One of the commands must then be given.
  void RequireCommand();
  bool Given(const std::string& command) const;

  // `name` is "--env", or "run" for what is told by its place. A value that is not empty is shown as the default.
  void Option(const std::string& name, std::string& value, const std::string& help);
  void Option(const std::string& name, std::optional<std::string>& value, const std::string& help);
  void Option(const std::string& name, std::vector<std::string>& values,
              const std::string& help);  // repeatable
  void Option(const std::string& name, const std::function<void(const std::string&)>& take,
              const std::string& help);
  // Not shown in --help: for what the program says to itself.
  void HiddenOption(const std::string& name, std::string& value);
  void RequiredOption(const std::string& name, std::string& value, const std::string& help);
  void Flag(const std::string& name, bool& value, const std::string& help);
  // Below the options in --help.
  void Footer(const std::string& text);

  // The exit code when there is nothing left to do: --help or --version was asked for, and printed. Throws UsageError.
  std::optional<int> Parse(int argc, char** argv);

 private:
  explicit CommandLine(CLI::App* app);

  std::unique_ptr<CLI::App> program_;  // of the program alone
  CLI::App* app_;
  std::vector<std::unique_ptr<CommandLine>> commands_;
};

}  // namespace trireme
