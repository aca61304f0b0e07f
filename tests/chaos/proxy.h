// A TCP relay on loopback that can be cut, like a cable: what a test puts between two processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace trireme::testing {

class Proxy {
 public:
  // Listens on a free port and passes connections on to 127.0.0.1:`port`.
  explicit Proxy(std::uint16_t port);
  ~Proxy();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // While cut, nothing passes and nobody is told; connections that lived then are gone when it is mended.
  void Cut() { cut_ = true; }
  void Mend() { cut_ = false; }

 private:
  void Run();

  std::uint16_t target_;
  std::uint16_t port_ = 0;
  int listener_;
  std::atomic<bool> cut_{false}, ended_{false};
  std::thread thread_;
};

// A port that nobody uses now.
std::uint16_t FreePort();

}  // namespace trireme::testing
