#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsUntil(Clock::time_point deadline) {
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string ReadAll(int fd) {
  std::string content;
  char block[4096];
  for (ssize_t n; (n = ::pread(fd, block, sizeof block, static_cast<off_t>(content.size()))) > 0;)
    content.append(block, static_cast<std::size_t>(n));
  return content;
}

void Limit(decltype(RLIMIT_DATA) resource, rlim_t value) {
  rlimit limit;
  getrlimit(resource, &limit);
  limit.rlim_cur = std::min(value, limit.rlim_max);
  setrlimit(resource, &limit);
}

// Runs in the child between fork and exec.
[[noreturn]] void Execute(const char* program, char* const* argv, const ProcessOptions& options, int out,
                          int err) {
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  if (options.out_file) out = ::open(options.out_file->c_str(), O_WRONLY);
  if (options.one_output) err = out;
  const int in = ::open("/dev/null", O_RDONLY);
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(126);
  if (options.no_descriptors) ::close_range(0, ~0U, 0);
  for (const std::string& variable : options.variables) ::putenv(const_cast<char*>(variable.c_str()));
  if (options.largest_file) {
    std::signal(SIGXFSZ, SIG_IGN);
    Limit(RLIMIT_FSIZE, *options.largest_file);
  }
  if (options.most_memory) Limit(RLIMIT_DATA, *options.most_memory);
  if (options.most_files) {
    const rlimit limit = {*options.most_files, *options.most_files};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  char* const nothing[] = {nullptr};
  ::execve(program, argv, options.empty_environment ? nothing : environ);
  ::_exit(127);
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& args,
                 const ProcessOptions& options)
    : out_fd_(::memfd_create("stdout", MFD_CLOEXEC)), err_fd_(::memfd_create("stderr", MFD_CLOEXEC)) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) Execute(program.c_str(), argv.data(), options, out_fd_, err_fd_);
  if (pid_ < 0) throw std::runtime_error("fork failed");
  pid_fd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (pid_fd_ < 0) throw std::runtime_error("pidfd_open failed");
}

Process::~Process() {
  if (!status_) {
    Signal(SIGKILL);
    EndsWithin(60);
  }
  for (const int fd : {pid_fd_, out_fd_, err_fd_}) ::close(fd);
}

bool Process::EndsWithin(double seconds) {
  const Clock::time_point deadline = After(seconds);
  while (!status_) {
    pollfd ended{pid_fd_, POLLIN, 0};
    const int wait_ms = static_cast<int>(std::clamp(SecondsUntil(deadline) * 1000, 0.0, 1e6));
    const int ready = ::poll(&ended, 1, wait_ms);
    if (ready > 0) {
      int status = 0;
      if (::waitpid(pid_, &status, 0) == pid_) status_ = status;
    } else if (SecondsUntil(deadline) <= 0) {
      return false;
    }
  }
  return true;
}

bool Process::RunsUntil(const std::function<bool()>& condition, double deadline_s) {
  const Clock::time_point deadline = After(deadline_s);
  while (!condition()) {
    if (EndsWithin(0.001) || SecondsUntil(deadline) <= 0) return false;
  }
  return true;
}

void Process::Signal(int signal) {
  if (!status_) ::kill(pid_, signal);
}

bool Process::Catches(int signal) const {
  std::ifstream status(fmt::format("/proc/{}/status", pid_));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

std::string Process::Err() const { return ReadAll(err_fd_); }

Outcome Process::Wait(double deadline_s) {
  if (!EndsWithin(deadline_s)) {
    ADD_FAILURE() << "still running after " << deadline_s << " s; stderr: " << ReadAll(err_fd_);
    Signal(SIGKILL);
    EndsWithin(60);
  }
  Outcome outcome;
  if (WIFEXITED(*status_)) outcome.code = WEXITSTATUS(*status_);
  if (WIFSIGNALED(*status_)) outcome.signal = WTERMSIG(*status_);
  outcome.out = ReadAll(out_fd_);
  outcome.err = ReadAll(err_fd_);
  return outcome;
}

}  // namespace trireme::testing
