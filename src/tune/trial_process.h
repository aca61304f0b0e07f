// A trial in a process of its own, seen from the one that has started it. It is pinned to a processor, has a process group of its
// own (Ctrl-C is for whoever started it), and ends when that one ends, or this object.
//
// Thread safety: none. The thread that makes it must live as long as it does.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tune/line_socket.h"
#include "trireme/tune/trial_order.h"

namespace trireme {

class TrialProcess {
 public:
  // Runs `command`, which calls RunTrial(kSocket), on one processor; -1: on any. Throws Error.
  TrialProcess(const std::vector<std::string>& command, const TrialOrder& order, int processor);
  ~TrialProcess();  // kills it
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  static constexpr int kSocket = 3;

  // What to poll for: messages, and what it prints to standard error.
  int socket() const { return socket_->descriptor(); }
  int errors() const { return errors_; }  // -1: it prints no more
  // Takes what has come. False: it has ended, or closed its socket, and all lines have been taken.
  bool Receive();
  std::optional<std::string> TakeLine();
  void Answer(const std::string& line) { socket_->Write(line); }
  // Waits for its end, after killing it if it does not come at once; how it ended, for people: "was ended by signal 11
  // (Segmentation fault): last line that it printed".
  std::string Ended();

  // Seconds of MonotonicSeconds() when a line was taken last.
  double last_sign_s() const { return last_sign_s_; }

 private:
  void ReadErrors();

  pid_t pid_ = -1;
  int errors_ = -1;
  std::unique_ptr<LineSocket> socket_;
  std::string printed_;  // the last of it
  double last_sign_s_ = 0;
};

}  // namespace trireme
