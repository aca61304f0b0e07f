// One host process: its bell, its socket, its end.
//
// Thread safety: everything may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/env/host/launcher.h"
#include "trireme/env/host/layout.h"
#include "trireme/env/host/patience.h"
#include "trireme/env/host/shared_memory.h"

namespace trireme {

// A host has ended or must be ended, since it does not answer or cannot do what it is for: what it stepped is lost, and
// another may do better.
class HostLost : public Error {
 public:
  using Error::Error;
};

// A part that a host serves, as those see it who wait for the host but not for this part. The batch writes the atomic
// ones before each command.
struct ServedPart {
  std::uint32_t number = 0;
  std::shared_ptr<SharedMemory> memory;  // that the rest lies in
  HostPart* words = nullptr;
  std::uint32_t* rewards = nullptr;        // bits, of the whole batch
  std::atomic<std::uint64_t> step{0};      // since Reset, 0: the first reset
  std::atomic<std::uint32_t> first_id{0};  // of the batch
  std::atomic<bool> closed{false};         // nobody waits for it any more

  // The first copy of the batch that has not got to the command.
  std::uint32_t At() const;
  bool done() const;
};

class HostProcess {
 public:
  // Starts it and says `start`, without waiting for the answer: WaitUntilStarted does. Throws Error.
  HostProcess(HostLauncher& launcher, const HostPatience& patience, const HostProgram& program,
              const std::string& name, const std::string& start);
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
  void WaitUntilStarted();
  // Says something, with a descriptor if that is not negative, and waits for the answer. Throws HostLost; a process that
  // makes no progress is killed, whatever it is stuck in.
  Answer Ask(const std::string& message, HostWork work, int memory = -1);
  // The same without an answer.
  void Tell(const std::string& message);

  // Without waiting until it does. It is asked once.
  void AskToEnd() noexcept;

  // After what it is wanted for was written.
  void Ring();
  std::uint32_t serving() const;  // HostBell

  // From when it was opened until it is closed. A part that is closed in the middle of a command is kept until that is done.
  void AddPart(std::shared_ptr<ServedPart> part);
  HostProgress progress();
  // Of one that does not answer: kills it; it has a moment to print where it is, when it gets SIGUSR1. Whoever is first
  // says why: Obituary() then begins with that. Names the environment it is stuck in, if it is in one.
  void GiveUp(HostWork work);

  bool ended();
  // Processor time in seconds; once it has ended, with that of what it has started and waited for.
  double cpu_s();
  // What became of it, once it has ended, and the last lines it printed; these alone.
  std::string Obituary();
  std::string LastLines();
  void Kill();
  bool given_up();

 private:
  void Send(const std::string& message, int memory);
  Answer Receive(HostWork work);
  void ForgetClosedParts();  // requires parts_mutex_
  std::string StuckAt();
  HostBell& bell() const { return *reinterpret_cast<HostBell*>(bell_.data()); }

  HostLauncher& launcher_;
  const HostPatience& patience_;
  const std::string name_;
  SharedMemory bell_;
  pid_t pid_ = 0;
  UniqueFd socket_;
  std::mutex conversation_;  // one at a time; guards `started_`
  bool started_ = false;
  std::mutex parts_mutex_;  // guards `parts_`
  std::vector<std::shared_ptr<ServedPart>> parts_;
  std::mutex mutex_;  // guards the rest
  bool ended_ = false;
  bool asked_to_end_ = false;
  int status_ = 0;
  double cpu_s_ = 0;  // once it has ended
  std::string last_lines_;
  std::string given_up_;  // why; empty: it was not
};

}  // namespace trireme
