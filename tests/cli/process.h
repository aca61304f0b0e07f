// A child process with its output captured, for tests of the program from outside.
//
// Every wait has a deadline; a process that outlives its Process object is killed. Not thread safe.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::testing {

// How a process ended and what it wrote.
struct Outcome {
  int code = -1;   // exit code, -1 when a signal ended it
  int signal = 0;  // that signal
  std::string out, err;
};

struct ProcessOptions {
  bool empty_environment = false;
  std::vector<std::string> variables = {};   // "NAME=value", on top of the test's own
  bool no_descriptors = false;               // standard input, output and error are closed
  std::string folder = {};                   // to run in; empty: the test's own
  std::optional<rlim_t> largest_file = {};   // writes beyond it fail with EFBIG
  std::optional<rlim_t> most_memory = {};    // of private data
  std::optional<rlim_t> most_files = {};     // that it may have open, and cannot raise
  bool one_output = false;                   // standard error goes where output goes
  std::optional<std::string> out_file = {};  // standard output goes there instead of being captured
};

class Process {
 public:
  // Starts `program` with `args`.
  Process(const std::string& program, const std::vector<std::string>& args,
          const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // True when it has ended within `seconds`.
  bool EndsWithin(double seconds);
  // True once `condition` holds; false when the process ends or the deadline passes before that.
  bool RunsUntil(const std::function<bool()>& condition, double deadline_s = 60);
  void Signal(int signal);
  // True once it has a handler for the signal: before, a signal ends it without further ado.
  bool Catches(int signal) const;
  // What it has written to standard error so far.
  std::string Err() const;
  // Fails the test, after a SIGKILL, when the deadline passes.
  Outcome Wait(double deadline_s = 120);

 private:
  pid_t pid_ = -1;
  int pid_fd_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  std::optional<int> status_;
};

}  // namespace trireme::testing
