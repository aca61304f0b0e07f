// Starts host processes and listens to what they print, in a thread of its own: a process asks to be killed when the
// thread that started it ends (PR_SET_PDEATHSIG), so that thread must be the last to go.
//
// However this program ends, the processes that hosts have started end too, unless they have left the host's process
// group: the kernel kills the group when it closes a pipe of this program (GroupEnd).
//
// What hosts print goes line by line, with the name of the host before it, to a file, once there is one: until then
// its beginning is kept. Never more than kMostLogged bytes. The last lines of each host are kept for messages.
//
// Thread safety: everything may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <array>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/env/host/shared_memory.h"

namespace trireme {

struct HostProgram {
  std::vector<std::string> command;         // the first is looked for in PATH
  std::string script = {};                  // what it can read at descriptor 4
  std::vector<std::string> variables = {};  // "NAME=value", of its environment unless this program's has them
  std::filesystem::path folder =
      {};  // that it works in; empty: this program's. A relative command is relative to it
};

// While it lives, the end of this program is the end of a process group: the kernel signals the group when the writer of
// a pipe is closed before its reader. In which order it closes the descriptors of a process that ends is its
// business, so there are two pipes, one for each order. A process that was forked from this one and has not
// started another program keeps the pipes open, and the group alive.
class GroupEnd {
 public:
  GroupEnd() = default;
  explicit GroupEnd(pid_t group);  // where there are no descriptors left it does nothing
  GroupEnd(GroupEnd&&) = default;
  GroupEnd& operator=(GroupEnd&&) = default;
  ~GroupEnd();  // nobody is killed

 private:
  struct Pipe {
    UniqueFd writer, reader;
  };
  std::array<Pipe, 2> pipes_;
};

class HostLauncher {
 public:
  static constexpr std::size_t kMostLogged = 16 << 20;

  HostLauncher();
  ~HostLauncher();  // of processes that have ended

  struct Launched {
    pid_t pid = 0;
    UniqueFd socket;  // the other end of its descriptor 3
  };
  // A new program in a process group of its own, with nothing of this one's but its environment. Throws Error.
  Launched Launch(const HostProgram& program, const std::string& name);

  // From now on, and what was printed before. The file is made when there is something to write.
  void LogTo(const std::filesystem::path& path);
  // The last lines of a process that has ended; empty if there were none. Forgets it.
  std::string TakeLastLines(pid_t pid);

 private:
  struct Printer {
    std::string name;
    UniqueFd pipe;
    std::string line;  // begun
    std::string last_lines;
    GroupEnd end;
  };

  void Loop();
  void Read(Printer& printer);
  void Write(const std::string& text);
  void Wake();

  UniqueFd wake_;
  std::mutex mutex_;                                   // guards the rest
  std::vector<std::packaged_task<Launched()>> tasks_;  // for the thread
  std::map<pid_t, Printer> printers_;
  std::filesystem::path log_path_;
  UniqueFd log_;
  std::string unwritten_;   // while there is no log
  std::size_t logged_ = 0;  // bytes
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme
