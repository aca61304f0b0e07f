#include "trireme/tune/trial_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::size_t kMostPrinted = 4096;
constexpr double kFarewell = 2;  // seconds that a process has to end after its last word

// In the new process, which has the memory of the old one until it becomes another program: only simple calls are safe, and
// nothing may be changed. Handlers of signals are set back, and nothing is blocked.
[[noreturn]] void Become(const std::vector<char*>& argv, int socket, int errors, int processor,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
  if (processor >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(processor), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  // A descriptor that has its number already would be closed at the start of the program.
  if (socket == TrialProcess::kSocket) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, TrialProcess::kSocket);
  }
  execvp(argv[0], argv.data());
  _exit(127);
}

}  // namespace

TrialProcess::TrialProcess(const std::vector<std::string>& command, const TrialOrder& order, int processor) {
  int ends[2], printed[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    Fail("cannot start a trial: {}", std::strerror(errno));
  socket_ = std::make_unique<LineSocket>(ends[0]);
  if (pipe2(printed, O_CLOEXEC | O_NONBLOCK) != 0) {
    close(ends[1]);
    Fail("cannot start a trial: {}", std::strerror(errno));
  }
  errors_ = printed[0];
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = vfork();  // copies no page tables, which may be large
  if (pid_ == 0) Become(argv, ends[1], printed[1], processor, parent);
  const int failure = errno;
  close(ends[1]);
  close(printed[1]);
  if (pid_ < 0) {
    close(errors_);
    Fail("cannot start a trial: {}", std::strerror(failure));
  }
  last_sign_s_ = MonotonicSeconds();
  socket_->Write(order.ToJson());
}

TrialProcess::~TrialProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (errors_ >= 0) close(errors_);
}

bool TrialProcess::Receive() {
  ReadErrors();
  return socket_->Receive();
}

std::optional<std::string> TrialProcess::TakeLine() {
  std::optional<std::string> line = socket_->TakeLine();
  if (line) last_sign_s_ = MonotonicSeconds();
  return line;
}

void TrialProcess::ReadErrors() {
  char bytes[4096];
  ssize_t got = -1;
  while (errors_ >= 0 && (got = read(errors_, bytes, sizeof bytes)) > 0) {
    printed_.append(bytes, static_cast<std::size_t>(got));
    if (printed_.size() > kMostPrinted) printed_.erase(0, printed_.size() - kMostPrinted);
  }
  if (got != 0) return;
  close(errors_);
  errors_ = -1;
}

std::string TrialProcess::Ended() {
  int status = 0;
  const double until = MonotonicSeconds() + kFarewell;
  while (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == 0) {
    if (MonotonicSeconds() > until) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  ReadErrors();
  std::string last(Trim(printed_));
  last.erase(0, last.rfind('\n') == std::string::npos ? 0 : last.rfind('\n') + 1);
  const std::string said = last.empty() ? "" : ": " + Printable(last);
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)), said);
  return fmt::format("ended with code {}{}", WEXITSTATUS(status), said);
}

}  // namespace trireme
