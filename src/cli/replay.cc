#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/base/version.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/run_flags.h"
#include "trireme/cli/security_flags.h"
#include "trireme/experience/replay_desk.h"
#include "trireme/rpc/transport.h"

namespace trireme {
namespace {

struct ReplayFlags {
  std::string listen = "127.0.0.1:7474", dir;
  std::optional<std::string> sync_every;
  bool quiet = false;
  SecurityFlags security;
};

struct ReplayNumbers {
  double sync_every_s = 10;

  void Fields(ConfigFields& field) { field("sync_every", sync_every_s, "", Between(0.1, 86400)); }
};

// Asks for what is remembered to be written to the disk, now and then, in a thread of its own, so that nobody waits for it.
class Syncing {
 public:
  Syncing(const ReplayDesk& desk, double every_s, std::function<void(const std::string&)> say)
      : thread_([this, &desk, every_s, say = std::move(say)] {
          std::unique_lock lock(mutex_);
          const auto every = std::chrono::duration<double>(every_s);
          while (!ended_.wait_for(lock, every, [this] { return end_; })) {
            lock.unlock();
            if (!desk.Sync())
              say("what is remembered cannot be written to the disk: a loss of power would lose it");
            lock.lock();
          }
        }) {}
  ~Syncing() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;  // guards end_
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

int RunReplay(const ReplayFlags& flags) {
  ReplayNumbers numbers;
  ConfigFields fields;
  numbers.Fields(fields);
  if (flags.sync_every) fields.Set("sync_every", *flags.sync_every, "--sync-every");
  const std::atomic<bool>& stop = StopOnSignals();
  const std::unique_ptr<ServerTransport> transport =
      TransportFor(flags.listen).Listen(flags.listen, flags.security.Read());
  const auto say = [&](const std::string& text) {
    if (!flags.quiet) fmt::print(stderr, "{}\n", text);
  };
  ReplayDesk desk(*transport, {.version = Version(), .folder = flags.dir, .say = say});
  fmt::print("listening on {}\n", transport->address());
  std::fflush(stdout);
  if (flags.dir.empty()) say("no --dir: what this server remembers is lost when it ends");
  if (!OnThisMachineOnly(transport->address()) && flags.security.token_file.empty())
    say("no --token-file: whoever reaches this address can take part in the run");
  const Syncing syncing(desk, numbers.sync_every_s, say);
  transport->Run(desk, [&] {
    if (stop.load()) desk.Leave();
    return desk.done();
  });
  desk.Sync();
  return 0;
}

}  // namespace

Command AddReplayCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand(
      "replay", "Remember what actors collect, for learners in other processes (train --replay)");
  auto flags = std::make_shared<ReplayFlags>();
  command.Option("--listen", flags->listen,
                 "host:port, or shm:/path or unix:/path on this host, where learners and actors find it");
  command.Option("--dir", flags->dir,
                 "folder in which what was remembered is found again, however the server ended");
  command.Option(
      "--sync-every", flags->sync_every,
      "seconds between requests to the system to write to the disk, where a loss of power counts (10)");
  command.Flag("--quiet", flags->quiet, "say nothing but where it listens");
  flags->security.AddTo(command, "clients must be signed by this authority");
  command.Footer(
      "The first learner says what is to be remembered, for which run; others are refused until that has "
      "ended. Ends with the run (code 0), or at Ctrl-C.");
  return [flags] { return RunReplay(*flags); };
}

}  // namespace trireme
