#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string>

#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/base/version.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/run_flags.h"
#include "trireme/cli/security_flags.h"
#include "trireme/train/actor_process.h"

namespace trireme {
namespace {

struct ActorFlags {
  std::string learner;
  std::optional<std::string> actors, wait;
  SecurityFlags security;
};

struct Numbers {
  int actors = 0;
  double wait_s = 60;

  void Fields(ConfigFields& field) {
    field("actors", actors, "", Between(0, 256));
    field("wait", wait_s, "", Between(0, 1e9));
  }
};

int RunActor(const ActorFlags& flags) {
  if (flags.learner.empty())
    Fail(
        "whom to collect for? Say --learner host:port, where `trireme train --listen`, or `trireme replay`, "
        "is");
  Numbers numbers;
  ConfigFields fields;
  numbers.Fields(fields);
  if (flags.actors) fields.Set("actors", *flags.actors, "--actors");
  if (flags.wait) fields.Set("wait", *flags.wait, "--wait");
  const std::atomic<bool>& stop = StopOnSignals();
  const ActorOptions options{.learner = {.transport = &TransportFor(flags.learner),
                                         .address = flags.learner,
                                         .security = flags.security.Read(),
                                         .version = Version(),
                                         .wait_s = numbers.wait_s,
                                         .stop = [&stop] { return stop.load(); }},
                             .actors = numbers.actors > 0 ? numbers.actors : UsableProcessors(),
                             .say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); }};
  const std::uint64_t sent = RunActors(options);
  if (stop.load()) {
    fmt::print(stderr, "interrupted after {} trajectories\n", sent);
    return InterruptedCode();
  }
  fmt::print("the run is over; {} trajectories were sent\n", sent);
  return 0;
}

}  // namespace

Command AddActorCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand(
      "actor", "Collect experience for a learner in another process (train --listen) or a replay server");
  auto flags = std::make_shared<ActorFlags>();
  command.Option(
      "--learner", flags->learner,
      "where the learner, or a replay server, listens: host:port, or shm:/path or unix:/path on this host");
  command.Option("--actors", flags->actors, "threads that collect (one for each processor)");
  command.Option("--wait", flags->wait, "seconds to wait for a learner that does not answer (60)");
  flags->security.AddTo(command, "who signs the learner");
  command.Footer(
      "All settings come from the learner. An actor may come and go at any time; it ends with code 0 when "
      "the "
      "run is over.");
  return [flags] { return RunActor(*flags); };
}

}  // namespace trireme
