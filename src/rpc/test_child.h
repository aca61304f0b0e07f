// Another process for tests that kill it, see rpc_peer.cc.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace trireme {

class Child {
 public:
  Child(const char* role, const std::string& address) : pid_(fork()) {
    if (pid_ != 0) return;
    execl(TRIREME_RPC_PEER, "rpc_peer", role, address.c_str(), nullptr);
    _exit(127);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Signal(int signal) { kill(pid_, signal); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

}  // namespace trireme
