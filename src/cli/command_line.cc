#include "trireme/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace trireme {

CommandLine::CommandLine(const std::string& name, const std::string& about, const std::string& version)
    : program_(std::make_unique<CLI::App>(about, name)), app_(program_.get()) {
  app_->set_version_flag("--version", version);
}

CommandLine::CommandLine(CLI::App* app) : app_(app) {}

CommandLine::~CommandLine() = default;

CommandLine& CommandLine::AddCommand(const std::string& name, const std::string& about) {
  commands_.emplace_back(new CommandLine(app_->add_subcommand(name, about)));
  return *commands_.back();
}

void CommandLine::RequireCommand() { app_->require_subcommand(1); }

bool CommandLine::Given(const std::string& command) const { return app_->got_subcommand(command); }

void CommandLine::Option(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->capture_default_str();
}

void CommandLine::Option(const std::string& name, std::optional<std::string>& value,
                         const std::string& help) {
  app_->add_option(name, value, help);
}

void CommandLine::Option(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  app_->add_option(name, values, help)->allow_extra_args(false);
}

void CommandLine::Option(const std::string& name, const std::function<void(const std::string&)>& take,
                         const std::string& help) {
  app_->add_option_function<std::string>(name, take, help);
}

void CommandLine::HiddenOption(const std::string& name, std::string& value) {
  app_->add_option(name, value)->group("");
}

void CommandLine::RequiredOption(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->required();
}

void CommandLine::Flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void CommandLine::Footer(const std::string& text) { app_->footer(text); }

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app_->exit(request);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return std::nullopt;
}

}  // namespace trireme
