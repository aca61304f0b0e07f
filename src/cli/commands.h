// The subcommands of `trireme`, one file each. A command adds its options to its command line and returns what to
// run; that returns the exit code and throws Error for what the user can mend.
#pragma once

#include <functional>

#include "trireme/cli/command_line.h"

namespace trireme {

using Command = std::function<int()>;

// `started_s`: MonotonicSeconds() when main() began.
Command AddTrainCommand(CommandLine& program, double started_s);
Command AddEvalCommand(CommandLine& program);
Command AddBenchCommand(CommandLine& program);
Command AddPlanCommand(CommandLine& program);
Command AddReplayCommand(CommandLine& program);
Command AddServerCommand(CommandLine& program);
Command AddActorCommand(CommandLine& program);
Command AddEnvsCommand(CommandLine& program);
Command AddAlgosCommand(CommandLine& program);
Command AddDevicesCommand(CommandLine& program);
Command AddSetupCommand(CommandLine& program);
Command AddTuneCommand(CommandLine& program);

}  // namespace trireme
