#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/processes.h"
#include "trireme/server/client/server_session.h"
#include "trireme/train/trainer.h"

namespace {

constexpr int kUserError = 2;
constexpr int kRunHasEnded = 3;  // nothing is left to do for a worker that comes now

int Run(int argc, char** argv, double started_s) {
  trireme::CommandLine program(
      "trireme",
      "Trireme trains deep reinforcement learning agents on all cores of a machine.\n"
      "Start with: trireme train --env CartPole-v1 --algo ppo --target 475",
      std::string("trireme ") + trireme::Version());
  program.RequireCommand();

  const std::vector<std::pair<const char*, trireme::Command>> commands = {
      {"train", trireme::AddTrainCommand(program, started_s)},
      {"eval", trireme::AddEvalCommand(program)},
      {"bench", trireme::AddBenchCommand(program)},
      {"plan", trireme::AddPlanCommand(program)},
      {"tune", trireme::AddTuneCommand(program)},
      {"server", trireme::AddServerCommand(program)},
      {"actor", trireme::AddActorCommand(program)},
      {"replay", trireme::AddReplayCommand(program)},
      {"envs", trireme::AddEnvsCommand(program)},
      {"algos", trireme::AddAlgosCommand(program)},
      {"devices", trireme::AddDevicesCommand(program)},
      {"setup", trireme::AddSetupCommand(program)},
  };
  try {
    if (const std::optional<int> done = program.Parse(argc, argv)) return *done;
  } catch (const trireme::UsageError& error) {
    trireme::ConnectProcesses();  // so that one speaks for all
    if (argc < 2) trireme::Fail("{}. See trireme --help.", error.what());
    std::vector<std::string> names;
    names.reserve(commands.size());
    for (const auto& [name, command] : commands) names.emplace_back(name);
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      trireme::Fail("there is no command '{}'.{} See trireme --help.", argv[1],
                    trireme::SuggestNearest(argv[1], names));
    }
    trireme::Fail("{}. See trireme {} --help.", error.what(), argv[1]);
  }
  for (const auto& [name, command] : commands) {
    if (!program.Given(name)) continue;
    // Only training and tuning span processes; of all else one copy is enough.
    const bool spans = std::string_view(name) == "train" || std::string_view(name) == "tune";
    const std::optional<trireme::Launch> launch = trireme::DetectLaunch();
    return launch && launch->rank > 0 && !spans ? 0 : command();
  }
  return kUserError;
}

// A request beyond the machine's memory then ends in std::bad_alloc and a message, not in the kernel killing
// whatever it likes. Sanitizers reserve more than that for themselves.
void LimitMemory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  rlimit limit;
  const rlim_t machine = trireme::MachineMemory();
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur <= machine) return;
  limit.rlim_cur = machine;
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

int Failed(const std::string& message, int code = kUserError) {
  trireme::LetFirstProcessSpeak();
  std::fflush(stdout);  // what it follows comes first, wherever both lead
  std::fprintf(stderr, "trireme: %s\n", message.c_str());
  trireme::LeaveProcesses(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const double started_s = trireme::MonotonicSeconds();
  trireme::OpenStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away must not end a run
  LimitMemory();
  trireme::EnsureHome();
  try {
    const int code = Run(argc, argv, started_s);
    if (std::fflush(stdout) != 0) trireme::Fail("cannot write the output: {}", std::strerror(errno));
    // Who was interrupted takes leave as properly as who has finished.
    trireme::LeaveProcesses(code > 128 ? 0 : code);
    return code;
  } catch (const trireme::RunHasEnded& error) {
    return Failed(error.what(), kRunHasEnded);
  } catch (const trireme::Error& error) {
    return Failed(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return Failed(fmt::format("cannot use {}: {}", error.path1().string(), error.code().message()));
  } catch (const std::bad_alloc&) {
    return Failed("not enough memory for these settings: reduce envs, horizon, replay or hidden");
  } catch (const std::exception& error) {
    return Failed(fmt::format("unexpected failure: {}", error.what()));
  }
}
