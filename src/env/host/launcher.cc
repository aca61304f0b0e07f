#include "trireme/env/host/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

extern char** environ;

namespace trireme {
namespace {

constexpr std::size_t kMostUnwritten = 256 << 10, kLastLines = 4096;

// Above the descriptors that the new program gets, so that none is overwritten before it is passed on.
UniqueFd High(int fd) {
  UniqueFd low(fd);
  return UniqueFd(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 16));
}

std::vector<std::string> Environment(const HostProgram& program) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  // There are as many hosts as processors: one processor is what each gets.
  std::vector<std::string> defaults = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"};
  defaults.insert(defaults.end(), program.variables.begin(), program.variables.end());
  for (const std::string& variable : defaults) {
    if (::getenv(variable.substr(0, variable.find('=')).c_str()) == nullptr) variables.push_back(variable);
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers(texts.size() + 1);
  for (std::size_t i = 0; i < texts.size(); ++i) pointers[i] = texts[i].data();
  return pointers;
}

pid_t Spawn(const HostProgram& program, int output, int socket, int script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawn_file_actions_adddup2(&actions, socket, 3);
  posix_spawn_file_actions_adddup2(&actions, script, 4);
  std::error_code unknown;  // one that is current already may have a path that this user cannot go
  if (!program.folder.empty() && program.folder != std::filesystem::current_path(unknown))
    posix_spawn_file_actions_addchdir_np(&actions, program.folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // In a group of its own: what a terminal sends to the program, Ctrl-C, is not for the hosts.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);

  std::vector<std::string> command = program.command, environment = Environment(program);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, command[0].c_str(), &actions, &attributes, Pointers(command).data(),
                                   Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Fail("cannot start {}: {}", command[0], std::strerror(error));
  return pid;
}

}  // namespace

GroupEnd::GroupEnd(pid_t group) {
  for (Pipe& pipe : pipes_) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;  // the reader's is less
    pipe.reader = UniqueFd(ends[0]);
    pipe.writer = UniqueFd(ends[1]);
    if (&pipe == &pipes_[0]) pipe.reader = UniqueFd(::fcntl(ends[0], F_DUPFD_CLOEXEC, ends[1] + 1));
    const int reader = pipe.reader.get();
    if (::fcntl(reader, F_SETOWN, -group) == 0 && ::fcntl(reader, F_SETSIG, SIGKILL) == 0) {
      ::fcntl(reader, F_SETFL, O_ASYNC);
    }
  }
}

GroupEnd::~GroupEnd() {
  for (Pipe& pipe : pipes_) pipe.reader = UniqueFd();
}

HostLauncher::HostLauncher() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.valid()) Fail("cannot make an event descriptor: {}", std::strerror(errno));
  thread_ = std::thread([this] { Loop(); });
}

HostLauncher::~HostLauncher() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  Wake();
  thread_.join();
}

void HostLauncher::Wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

HostLauncher::Launched HostLauncher::Launch(const HostProgram& program, const std::string& name) {
  std::packaged_task<Launched()> task([&] {
    int pipe[2] = {-1, -1}, sockets[2] = {-1, -1};
    if (::pipe2(pipe, O_CLOEXEC) != 0 ||
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
      const int error = errno;
      const UniqueFd read(pipe[0]), write(pipe[1]);
      Fail("cannot connect a host process: {}", std::strerror(error));
    }
    UniqueFd read(pipe[0]), ours(sockets[0]);
    const UniqueFd write = High(pipe[1]), theirs = High(sockets[1]);
    const UniqueFd script = High(::fcntl(MemoryOf(program.script, "a script").get(), F_DUPFD_CLOEXEC, 0));
    const pid_t pid = Spawn(program, write.get(), theirs.get(), script.get());
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
    const std::lock_guard lock(mutex_);
    printers_[pid] = {name, std::move(read), "", "", GroupEnd(pid)};
    return Launched{pid, std::move(ours)};
  });
  std::future<Launched> launched = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  Wake();
  return launched.get();
}

void HostLauncher::Loop() {
  for (bool ends = false; !ends;) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    std::vector<std::packaged_task<Launched()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      ends = ends_;
      tasks.swap(tasks_);
      for (auto& [pid, printer] : printers_) {
        Read(printer);
        if (printer.pipe.valid()) polled.push_back({printer.pipe.get(), POLLIN, 0});
      }
    }
    for (auto& task : tasks) task();
    if (!ends && tasks.empty()) ::poll(polled.data(), polled.size(), -1);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
  }
}

// Whatever there is. Requires the lock.
void HostLauncher::Read(Printer& printer) {
  char bytes[4096];
  while (printer.pipe.valid()) {
    const ssize_t n = ::read(printer.pipe.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    if (n == 0) printer.pipe = UniqueFd();
    printer.line.append(bytes, static_cast<std::size_t>(n));
    for (std::size_t end; (end = printer.line.find('\n')) != std::string::npos || n == 0;) {
      if (printer.line.empty()) break;
      const std::string line = printer.line.substr(0, end) + '\n';
      printer.line.erase(0, line.size());
      printer.last_lines += line;
      Write(printer.name + ": " + line);
    }
    if (printer.line.size() > kLastLines) printer.line += '\n';
    if (printer.last_lines.size() > 2 * kLastLines) {
      printer.last_lines.erase(0, printer.last_lines.size() - kLastLines);
    }
  }
}

void HostLauncher::Write(const std::string& text) {
  if (log_path_.empty()) {
    if (unwritten_.size() + text.size() <= kMostUnwritten) unwritten_ += text;
    return;
  }
  if (logged_ > kMostLogged) return;
  if (!log_.valid())
    log_ = UniqueFd(::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  logged_ += text.size();
  const std::string last = logged_ > kMostLogged ? "(more is not kept)\n" : text;
  [[maybe_unused]] const ssize_t n = ::write(log_.get(), last.data(), last.size());
}

void HostLauncher::LogTo(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  log_path_ = path;
  log_ = UniqueFd();
  if (!unwritten_.empty()) Write(std::exchange(unwritten_, {}));
}

std::string HostLauncher::TakeLastLines(pid_t pid) {
  const std::lock_guard lock(mutex_);
  const auto printer = printers_.find(pid);
  if (printer == printers_.end()) return "";
  Read(printer->second);
  std::string lines = printer->second.last_lines + printer->second.line;
  printers_.erase(printer);
  if (lines.size() > kLastLines) lines.erase(0, lines.size() - kLastLines);
  return lines;
}

}  // namespace trireme
