#include "trireme/server/client/local_servers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/rpc/transport.h"

namespace trireme {
namespace {

constexpr auto kStartUp = std::chrono::seconds(20);
constexpr auto kFarewell = std::chrono::seconds(5);
constexpr auto kShortestPause = std::chrono::milliseconds(50),
               kLongestPause = std::chrono::milliseconds(10'000);

// Of a process that could not be started, as shells have it.
constexpr int kNoProgram = 127;

struct Child {
  std::string program;
  std::vector<std::string> arguments;
  pid_t pid = -1;
  Deadline restart = Clock::now();  // not before this; it runs since then
  Clock::duration pause = kShortestPause;
};

// Starts the child and waits for its first line. Empty on success, else what went wrong.
std::string Start(Child& child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  std::vector<char*> argv;
  for (std::string& argument : child.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // no server outlives its run
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);  // Ctrl-C is the run's to handle
    dup2(ends[1], STDOUT_FILENO);
    execvp(child.program.c_str(), argv.data());
    _exit(kNoProgram);
  }
  close(ends[1]);
  std::string line;
  const Deadline deadline = Clock::now() + kStartUp;
  while (child.pid > 0 && line.find('\n') == std::string::npos) {
    pollfd ready{ends[0], POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) break;
    char text[256];
    const ssize_t got = read(ends[0], text, sizeof text);
    if (got <= 0) break;
    line.append(text, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  if (line.find('\n') != std::string::npos) return {};
  int status = 0;
  if (child.pid > 0) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, &status, 0);
  }
  child.pid = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoProgram) {
    return "there is no program " + child.program + " to run: install trireme, or put it into PATH";
  }
  return "it did not start to listen";
}

}  // namespace

class LocalServers::Keeper {
 public:
  Keeper(const std::string& program, int count, const std::filesystem::path& folder, bool audit,
         std::function<void(const std::string&)> say)
      : say_(std::move(say)), children_(count) {
    for (int i = 0; i < count; ++i) {
      addresses_.push_back("unix:" + (sockets_.path() / std::to_string(i)).string());
      children_[i].program = program;
      children_[i].arguments = {"trireme",     "server", "--listen",
                                addresses_[i], "--dir",  (folder / std::to_string(i)).string(),
                                "--quiet"};
      if (audit) children_[i].arguments.push_back("--audit");
      const std::string problem = Start(children_[i]);
      if (problem.empty()) continue;
      EndAll();
      Fail("cannot start server {}: {}", i, problem);
    }
    thread_ = std::thread([this] { Watch(); });
  }

  ~Keeper() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    thread_.join();
    EndAll();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }

  double ProcessorSeconds() {
    const std::lock_guard lock(mutex_);
    double seconds = 0;
    for (const Child& child : children_) {
      clockid_t clock;
      timespec time;
      if (child.pid <= 0 || clock_getcpuclockid(child.pid, &clock) != 0) continue;
      if (clock_gettime(clock, &time) != 0) continue;
      seconds += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
    return seconds;
  }

 private:
  void Watch() {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (ended_) return;
      for (std::size_t i = 0; i < children_.size(); ++i) {
        Child& child = children_[i];
        if (child.pid > 0 && waitpid(child.pid, nullptr, WNOHANG) == child.pid) {
          child.pid = -1;
          // One that dies again and again is given more and more time; one that has lived for long is not.
          const bool lived_long = Clock::now() > child.restart + std::chrono::seconds(30);
          child.pause = lived_long ? Clock::duration(kShortestPause)
                                   : std::min<Clock::duration>(2 * child.pause, kLongestPause);
          child.restart = Clock::now() + child.pause;
        }
        if (child.pid > 0 || Clock::now() < child.restart) continue;
        const std::string problem = Start(child);
        child.restart = Clock::now() + child.pause;
        say_(problem.empty() ? fmt::format("server {} had died and was started again", i)
                             : fmt::format("server {} has died and cannot be started again: {}", i, problem));
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  void EndAll() {
    for (const Child& child : children_) {
      if (child.pid > 0) kill(child.pid, SIGTERM);
    }
    const Deadline deadline = Clock::now() + kFarewell;
    for (Child& child : children_) {
      while (child.pid > 0 && waitpid(child.pid, nullptr, WNOHANG) == 0) {
        if (Clock::now() > deadline) kill(child.pid, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      child.pid = -1;
    }
  }

  ScratchFolder sockets_;  // with a short path: that of a socket must not exceed 107 bytes
  std::function<void(const std::string&)> say_;
  std::vector<std::string> addresses_;
  std::mutex mutex_;  // guards, while the thread runs:
  std::vector<Child> children_;
  bool ended_ = false;
  std::thread thread_;
};

LocalServers::LocalServers(const std::string& program, int count, const std::filesystem::path& folder,
                           bool audit, std::function<void(const std::string&)> say) {
  LoadGrpc();  // what a server cannot do without is said here, not by a process that ends
  keeper_ = std::make_unique<Keeper>(program, count, folder, audit, std::move(say));
}

LocalServers::~LocalServers() = default;

const std::vector<std::string>& LocalServers::addresses() const { return keeper_->addresses(); }
double LocalServers::ProcessorSeconds() const { return keeper_->ProcessorSeconds(); }

}  // namespace trireme
