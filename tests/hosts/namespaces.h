// Network namespaces that live as long as the object that made them, or as the process if that is killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace trireme::testing {

// Empty when this process may make network namespaces and pairs of interfaces, otherwise what is in the way.
// Without the right to, it first makes the process root of a user namespace of its own, if the system allows
// that; this needs a process of one thread.
std::string WhyNoNamespaces();

// A network namespace with a host name, shared memory and machine id of its own; files are those of all. A
// child process holds it, and kills whoever is left in it when this process ends, however it ends.
class Namespace {
 public:
  explicit Namespace(const std::string& host_name);
  // Kills every process in it.
  ~Namespace();
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  // Of the child that holds it.
  pid_t pid() const { return pid_; }
  // The words in front of a command that make it run inside, as the same process, in the root folder.
  std::vector<std::string> Enter() const;
  // Runs a command inside; throws with its words when it fails.
  void Run(const std::vector<std::string>& command) const;
  // Calls `work` on a thread inside, and waits; sockets that it makes stay inside. Exceptions pass.
  void Call(const std::function<void()>& work) const;
  // Who is in it, besides the child that holds it.
  std::vector<pid_t> Processes() const;

 private:
  pid_t pid_ = -1;       // ours until it is waited for, so that no other process can have it
  std::string network_;  // what the kernel calls it
  int life_ = -1;        // a pipe whose end the child sees when this process ends
};

}  // namespace trireme::testing
