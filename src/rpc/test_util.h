// What tests of transports share: messages, and servers on threads of their own.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/plugin.h"
#include "trireme/rpc/transport.h"

namespace trireme {

using namespace std::chrono_literals;

inline Deadline In(Clock::duration duration) { return Clock::now() + duration; }

// Polls until `condition` holds. False: it did not in time.
inline bool Eventually(const std::function<bool()>& condition, Clock::duration within = 20s) {
  const Deadline end = In(within);
  do {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  } while (Clock::now() < end);
  return false;
}

inline bool HaveGrpc() {
  setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
  return HavePlugin("libtrireme_grpc.so");
}

inline Transport& Grpc() {
  setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
  return LoadGrpc();
}

// Bytes that differ from place to place and from seed to seed.
inline std::vector<std::byte> Pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + (i >> 8) + seed * 17) & 255);
  return bytes;
}

inline Outgoing Message(const std::vector<std::byte>& bytes) {
  auto buffer = std::make_shared<AlignedBuffer<std::byte>>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), buffer->begin());
  return buffer;
}

inline std::vector<std::byte> ReadAll(Incoming& message) {
  std::vector<std::byte> bytes(message.size());
  message.Read(bytes);
  return bytes;
}

// A folder that disappears with this object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = "/tmp/trireme-rpc-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestHandler : ServerTransport::Handler {
  void OnOpen(PeerId, const std::string&) override {}
  void OnMessage(PeerId, Incoming&) override {}
  void OnClose(PeerId) override {}
  Deadline OnTime(Deadline now) override { return now + 1h; }
};

// A server on a thread of its own, as long as this object lives. `knows_all`: it allows every client messages
// of any length.
class TestServer {
 public:
  using OnMessageFunction = std::function<void(ServerTransport&, PeerId, Incoming&)>;

  TestServer(Transport& transport, const std::string& address, OnMessageFunction on_message,
             const Security& security = {}, const Limits& limits = {}, bool knows_all = true)
      : server_(transport.Listen(address, security, limits)),
        handler_(*server_, std::move(on_message), knows_all),
        thread_([this] { server_->Run(handler_, [this] { return stop_.load(); }); }) {}
  ~TestServer() {
    stop_ = true;
    thread_.join();
  }

  const std::string& address() const { return server_->address(); }
  int opened() const { return handler_.opened; }
  int closed() const { return handler_.closed; }
  int messages() const { return handler_.messages; }

 private:
  struct Counter final : TestHandler {
    Counter(ServerTransport& server, OnMessageFunction on_message, bool knows_all)
        : server(server), on_message(std::move(on_message)), knows_all(knows_all) {}
    void OnOpen(PeerId peer, const std::string&) override {
      ++opened;
      if (knows_all) server.Allow(peer, SIZE_MAX);
    }
    void OnMessage(PeerId peer, Incoming& message) override {
      on_message(server, peer, message);
      ++messages;
    }
    void OnClose(PeerId) override { ++closed; }

    ServerTransport& server;
    const OnMessageFunction on_message;
    const bool knows_all;
    std::atomic<int> opened = 0, closed = 0, messages = 0;
  };

  const std::unique_ptr<ServerTransport> server_;
  Counter handler_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Sends back what it gets.
class EchoServer : public TestServer {
 public:
  EchoServer(Transport& transport, const std::string& address, const Security& security = {},
             const Limits& limits = {})
      : TestServer(
            transport, address,
            [](ServerTransport& server, PeerId peer, Incoming& message) {
              server.Send(peer, Message(ReadAll(message)));
            },
            security, limits) {}
};

}  // namespace trireme
