// One host process: its bell, its socket, its end.
//
// Thread safety: everything may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>

#include "trireme/base/error.h"
#include "trireme/env/host/launcher.h"
#include "trireme/env/host/layout.h"
#include "trireme/env/host/shared_memory.h"

namespace trireme {

// A host has ended or must be ended, since it does not answer or cannot do what it is for: what it stepped is lost, and
// another may do better.
class HostLost : public Error {
 public:
  using Error::Error;
};

// Counts how long a host that is to do something has been doing nothing; 0: there is no limit. Time in which this
// program did not run does not count.
class Patience {
 public:
  static constexpr double kSlice = 0.02;  // seconds of one look
  explicit Patience(double limit_s) : limit_s_(limit_s) {}
  void Add(double seconds) { waited_s_ += seconds < 4 * kSlice ? seconds : 4 * kSlice; }
  void Renew() { waited_s_ = 0; }
  bool over() const { return limit_s_ > 0 && waited_s_ > limit_s_; }

 private:
  double limit_s_, waited_s_ = 0;
};

class HostProcess {
 public:
  // Starts it and says `start`, without waiting for the answer: WaitUntilStarted does. Throws Error.
  HostProcess(HostLauncher& launcher, const HostProgram& program, const std::string& name,
              const std::string& start);
  // As AskToEnd; kills it, and what it has started, when it does not do so soon.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }

  struct Answer {
    std::string text;   // JSON, an object
    std::string error;  // what it says went wrong; empty: nothing
    UniqueFd memory;
  };
  // Blocks until it has answered what it was started with. Throws HostLost, also where it answers with an error. Returns at
  // once when it has been waited for before.
  void WaitUntilStarted(double timeout_s);
  // Says something, with a descriptor if that is not negative, and waits for the answer. Time in which it works on a
  // part does not count: who wants that part counts it. Throws HostLost; a process that does not answer is killed.
  Answer Ask(const std::string& message, double timeout_s, int memory = -1);
  // The same without an answer.
  void Tell(const std::string& message);

  // Without waiting until it does. It is asked once.
  void AskToEnd() noexcept;

  // After what it is wanted for was written.
  void Ring();
  std::uint32_t serving() const;  // HostBell

  bool ended();
  // Processor time in seconds; once it has ended, with that of what it has started and waited for.
  double cpu_s();
  // What became of it, once it has ended, and the last lines it printed; these alone.
  std::string Obituary();
  std::string LastLines();
  void Kill();
  // Of one that does not answer: it has a moment to print where it is, when it gets SIGUSR1.
  void KillFrozen();

 private:
  void Send(const std::string& message, int memory);
  Answer Receive(double timeout_s);
  HostBell& bell() const { return *reinterpret_cast<HostBell*>(bell_.data()); }

  HostLauncher& launcher_;
  const std::string name_;
  SharedMemory bell_;
  pid_t pid_ = 0;
  UniqueFd socket_;
  std::mutex conversation_;  // one at a time; guards `started_`
  bool started_ = false;
  std::mutex mutex_;  // guards the rest
  bool ended_ = false;
  bool asked_to_end_ = false;
  int status_ = 0;
  double cpu_s_ = 0;  // once it has ended
  std::string last_lines_;
};

}  // namespace trireme
