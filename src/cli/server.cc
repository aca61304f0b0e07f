#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "trireme/base/file.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/run_flags.h"
#include "trireme/cli/security_flags.h"
#include "trireme/rpc/transport.h"
#include "trireme/server/service/parameter_server.h"

namespace trireme {
namespace {

struct ServerFlags {
  std::string listen = "127.0.0.1:7171", dir;
  bool durable = false, audit = false, accept_loss = false, quiet = false;
  SecurityFlags security;
};

int RunServer(const ServerFlags& flags) {
  if (flags.dir.empty() && (flags.durable || flags.audit)) {
    Fail("{} needs a folder to write to: add --dir", flags.durable ? "--durable" : "--audit");
  }
  const std::atomic<bool>& stop = StopOnSignals();
  const std::unique_ptr<ServerTransport> transport =
      TransportFor(flags.listen).Listen(flags.listen, flags.security.Read());
  const auto say = [&](const std::string& text) {
    if (!flags.quiet) fmt::print(stderr, "{}\n", text);
  };
  ParameterServer server(*transport, {.folder = flags.dir,
                                      .durable = flags.durable,
                                      .audit = flags.audit,
                                      .accept_loss = flags.accept_loss,
                                      .say = say});
  fmt::print("listening on {}\n", transport->address());
  std::fflush(stdout);
  if (flags.dir.empty()) say("no --dir: what this server holds is lost when it ends");
  if (!OnThisMachineOnly(transport->address()) && flags.security.token_file.empty()) {
    say("no --token-file: whoever reaches this address can change the run");
  }
  transport->Run(server, [&] { return stop.load(); });
  return 0;
}

}  // namespace

Command AddServerCommand(CommandLine& program) {
  CommandLine& command =
      program.AddCommand("server", "Hold parameters for workers in other processes (train --store server)");
  auto flags = std::make_shared<ServerFlags>();
  command.Option("--listen", flags->listen, "host:port, or unix:/path or shm:/path for this host");
  command.Option("--dir", flags->dir, "folder from which the server recovers after a crash");
  command.Flag("--durable", flags->durable, "wait for the disk: survives the loss of power too");
  command.Flag("--audit", flags->audit, "list every update in the folder");
  command.Flag("--accept-loss", flags->accept_loss,
               "go on with what can be read of files that were damaged or cut");
  command.Flag("--quiet", flags->quiet, "say nothing but where it listens");
  flags->security.AddTo(command, "clients must be signed by this authority");
  command.Footer("The first worker says what the run is; later ones must agree. Ends at Ctrl-C.");
  return [flags] { return RunServer(*flags); };
}

}  // namespace trireme
