#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "train/trainer.h"

namespace {

constexpr int kUserError = 2;

int Run(int argc, char** argv, double started_s) {
  CLI::App app(
      "Trireme trains deep reinforcement learning agents on all cores of a machine.\n"
      "Start with: trireme train --env CartPole-v1 --algo ppo --target 475",
      "trireme");
  app.require_subcommand(1);
  app.set_version_flag("--version", "trireme " TRIREME_VERSION);

  const std::vector<std::pair<const char*, trireme::Command>> commands = {
      {"train", trireme::AddTrainCommand(app, started_s)},
      {"eval", trireme::AddEvalCommand(app)},
      {"envs", trireme::AddEnvsCommand(app)},
      {"algos", trireme::AddAlgosCommand(app)},
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "trireme: %s. See trireme --help.\n", error.what());
    return kUserError;
  }
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(name)) return command();
  }
  return kUserError;
}

}  // namespace

int main(int argc, char** argv) {
  const double started_s = trireme::MonotonicSeconds();
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal must not end a run
  try {
    return Run(argc, argv, started_s);
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "trireme: %s\n", error.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "trireme: not enough memory for these settings: reduce envs, horizon or hidden\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme: unexpected failure: %s\n", error.what());
  }
  return kUserError;
}
