#include "namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "process.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kHostNamespaces = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS;

std::string Program(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (fs::exists(folder + name)) return folder + name;
  }
  return "";
}

std::string NetworkOf(const std::string& pid) {
  std::error_code gone;
  return fs::read_symlink("/proc/" + pid + "/ns/net", gone).string();
}

// Nobody, if the network is not known: then everybody whose network is not known either would be meant.
std::vector<pid_t> ProcessesIn(const std::string& network, pid_t except) {
  std::vector<pid_t> found;
  if (network.empty()) return found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos || NetworkOf(name) != network) continue;
    if (std::stoi(name) != except) found.push_back(std::stoi(name));
  }
  return found;
}

void KillAllIn(const std::string& network, pid_t except) {
  // Again until nobody is left, since whoever is killed last may just have started another.
  for (int i = 0; i < 1000; ++i) {
    const std::vector<pid_t> left = ProcessesIn(network, except);
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    ::usleep(5000);
  }
}

void WriteFile(const char* path, const std::string& text) { std::ofstream(path) << text; }

bool BecomeRootOfAUserNamespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  WriteFile("/proc/self/setgroups", "deny");
  WriteFile("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
  WriteFile("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  return ::geteuid() == 0;
}

// In a child, because the namespaces of this process stay as they are. Gives errno.
int TryNamespaces() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(kHostNamespaces) == 0 ? 0 : errno);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

// Makes this process a host of its own: without it, libraries that look whether two processes are on one
// machine find that they are, and go through its memory instead of the network. False with errno.
bool BecomeAHost(const std::string& name) {
  constexpr const char* kOwnId = "/dev/shm/boot_id";
  if (::unshare(kHostNamespaces) != 0 || ::sethostname(name.c_str(), name.size()) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) {
    return false;
  }
  // As unique as the process, in the form of the kernel's.
  char id[64];
  std::snprintf(id, sizeof id, "%08x-0000-4000-8000-%012x\n", static_cast<unsigned>(::getpid()),
                static_cast<unsigned>(std::hash<std::string>()(name)));
  WriteFile(kOwnId, id);
  return ::mount(kOwnId, "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0 &&
         ::unlink(kOwnId) == 0;
}

// The life of the child that holds a namespace. `ready` and `life` are ends of pipes.
[[noreturn]] void Hold(const std::string& host_name, int ready, int life) {
  ::prctl(PR_SET_NAME, "host");
  // Ctrl-C is for the test; this one ends with it.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  const int error = BecomeAHost(host_name) ? 0 : errno;
  if (::write(ready, &error, sizeof error) != sizeof error || error != 0) ::_exit(1);
  const std::string network = NetworkOf("self");
  char nothing;
  while (::read(life, &nothing, 1) < 0 && errno == EINTR) {
  }
  KillAllIn(network, ::getpid());
  ::_exit(0);
}

}  // namespace

std::string WhyNoNamespaces() {
  for (const char* program : {"ip", "nsenter"}) {
    if (Program(program).empty()) return std::string(program) + " is not installed";
  }
  int error = TryNamespaces();
  if (error == EPERM && BecomeRootOfAUserNamespace()) error = TryNamespaces();
  if (error != 0) return std::string("no network namespaces: ") + std::strerror(error);
  try {
    const Namespace probe("probe");
    probe.Run({"ip", "link", "add", "one", "type", "veth", "peer", "name", "other"});
  } catch (const std::exception& refused) {
    return std::string("no pairs of network interfaces: ") + refused.what();
  }
  return "";
}

Namespace::Namespace(const std::string& host_name) {
  int ready[2], life[2];
  if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(life, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe for a namespace");
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    // Without other ends of pipes, so that the child sees the end of its parent, not of its elder siblings.
    ::dup2(ready[1], 3);
    ::dup2(life[0], 4);
    ::close_range(5, ~0U, 0);
    Hold(host_name, 3, 4);
  }
  ::close(ready[1]);
  ::close(life[0]);
  life_ = life[1];
  int error = EPIPE;
  const ssize_t got = ::read(ready[0], &error, sizeof error);
  ::close(ready[0]);
  if (got != sizeof error || error != 0)
    throw std::runtime_error(std::string("no network namespace: ") + std::strerror(error));
  network_ = NetworkOf(std::to_string(pid_));
  // Whoever is in it will be killed, so be sure.
  if (network_.empty() || network_ == NetworkOf("self")) throw std::runtime_error("not a network of its own");
}

Namespace::~Namespace() {
  KillAllIn(network_, pid_);
  ::close(life_);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<std::string> Namespace::Enter() const {
  return {Program("nsenter"), "--target", std::to_string(pid_), "--net", "--uts", "--mount", "--"};
}

void Namespace::Run(const std::vector<std::string>& command) const {
  std::vector<std::string> words = Enter();
  words.push_back(Program(command.at(0)));
  words.insert(words.end(), command.begin() + 1, command.end());
  Process process(words[0], {words.begin() + 1, words.end()});
  const Outcome outcome = process.Wait(30);
  if (outcome.code == 0) return;
  std::string what;
  for (const std::string& word : command) what += word + " ";
  throw std::runtime_error(what + "failed: " + outcome.err);
}

void Namespace::Call(const std::function<void()>& work) const {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      const int network = ::open(("/proc/" + std::to_string(pid_) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
      const int entered = ::setns(network, CLONE_NEWNET);
      ::close(network);
      if (entered != 0)
        throw std::runtime_error(std::string("cannot enter a namespace: ") + std::strerror(errno));
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

std::vector<pid_t> Namespace::Processes() const { return ProcessesIn(network_, pid_); }

}  // namespace trireme::testing
