// The subcommands of `trireme`, one file each. A command adds its options to the parser and returns what to
// run; that returns the exit code and throws Error for what the user can mend.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace trireme {

using Command = std::function<int()>;

// `started_s`: MonotonicSeconds() when main() began.
Command AddTrainCommand(CLI::App& app, double started_s);
Command AddEvalCommand(CLI::App& app);
Command AddBenchCommand(CLI::App& app);
Command AddPlanCommand(CLI::App& app);
Command AddServerCommand(CLI::App& app);
Command AddEnvsCommand(CLI::App& app);
Command AddAlgosCommand(CLI::App& app);

}  // namespace trireme
