// Servers and workers of a run inside one process, over a network that can be cut and frozen: for tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/test_util.h"
#include "trireme/server/client/heartbeat.h"
#include "trireme/server/client/server_communicator.h"
#include "trireme/server/client/server_store.h"
#include "trireme/server/service/parameter_server.h"

namespace trireme {

// A memory transport that knows the numbers of its streams.
class TestNetwork {
 public:
  MemoryTransport memory;

  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security, PeerId& number) {
    const std::lock_guard lock(mutex_);
    number = ++last_;
    return memory.Connect(address, security);
  }

 private:
  std::mutex mutex_;
  PeerId last_ = 0;  // guarded by mutex_
};

// The cables of one worker. Thread safe.
class Wire final : public Transport {
 public:
  explicit Wire(TestNetwork& network) : network_(network) {}

  // Asked before every message that is sent and after every one that is received: true loses it, and the
  // stream with it.
  std::function<bool()> fault = [] { return false; };
  // The same for answers of one kind.
  std::function<bool(const std::string& address, MessageKind)> lose = nullptr;

  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                  const Limits&) override;
  std::unique_ptr<ServerTransport> Listen(const std::string&, const Security&, const Limits&) override {
    std::abort();
  }

  // All streams that there are, and as long as it is frozen those to come.
  void Cut() {
    ForAll([&](PeerId number) { network_.memory.Cut(number); });
  }
  void Freeze() {
    frozen_ = true;
    ForAll([&](PeerId number) { network_.memory.Freeze(number); });
  }
  void Thaw() {
    frozen_ = false;
    ForAll([&](PeerId number) { network_.memory.Thaw(number); });
  }

 private:
  class FaultyStream;
  void ForAll(const std::function<void(PeerId)>& action) {
    const std::lock_guard lock(mutex_);
    for (const PeerId number : streams_) action(number);
  }

  TestNetwork& network_;
  std::mutex mutex_;
  std::set<PeerId> streams_;  // guarded by mutex_
  std::atomic<bool> frozen_ = false;
};

// A message whose header was looked at.
class SeenMessage final : public Incoming {
 public:
  SeenMessage() = default;
  explicit SeenMessage(Incoming& message) : bytes_(message.size()) { message.Read(bytes_); }

  MessageKind kind() const {
    Header header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    return header.kind;
  }
  std::size_t size() const override { return bytes_.size() - offset_; }
  void Read(std::span<std::byte> to) override {
    std::copy_n(bytes_.data() + offset_, to.size(), to.data());
    offset_ += to.size();
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t offset_ = 0;
};

class Wire::FaultyStream final : public Stream {
 public:
  FaultyStream(Wire& wire, std::string address, PeerId number, std::unique_ptr<Stream> stream)
      : wire_(wire), address_(std::move(address)), number_(number), stream_(std::move(stream)) {}
  ~FaultyStream() override {
    const std::lock_guard lock(wire_.mutex_);
    wire_.streams_.erase(number_);
  }

  bool Send(Outgoing message, Deadline deadline) override {
    if (wire_.fault()) wire_.network_.memory.Cut(number_);
    return stream_->Send(std::move(message), deadline);
  }
  bool Flush(Deadline deadline) override { return stream_->Flush(deadline); }
  Incoming* Receive(Deadline deadline) override {
    Incoming* message = stream_->Receive(deadline);
    if (message == nullptr) return nullptr;
    bool lost = wire_.fault();
    if (wire_.lose) {
      seen_ = SeenMessage(*message);
      message = &seen_;
      lost |= wire_.lose(address_, seen_.kind());
    }
    if (!lost) return message;
    wire_.network_.memory.Cut(number_);
    return stream_->Receive(deadline);
  }
  bool closed() const override { return stream_->closed(); }
  std::string why() const override { return stream_->why(); }

 private:
  Wire& wire_;
  const std::string address_;
  const PeerId number_;
  const std::unique_ptr<Stream> stream_;
  SeenMessage seen_;
};

inline std::unique_ptr<Stream> Wire::Connect(const std::string& address, const Security& security,
                                             const Limits&) {
  PeerId number = 0;
  std::unique_ptr<Stream> stream = network_.Connect(address, security, number);
  {
    const std::lock_guard lock(mutex_);
    streams_.insert(number);
  }
  if (frozen_) network_.memory.Freeze(number);
  return std::make_unique<FaultyStream>(*this, address, number, std::move(stream));
}

// A parameter server on a thread of its own.
class RunningServer {
 public:
  RunningServer(Transport& transport, std::string address, ParameterServerOptions options,
                const Limits& limits = {})
      : transport_(transport), address_(std::move(address)), options_(std::move(options)), limits_(limits) {
    Start();
    address_ = listener_->address();
  }
  ~RunningServer() { Stop(); }

  const std::string& address() const { return address_; }
  void AskToStop() { stop_ = true; }
  // Its streams break; what its folder has remains.
  void Stop() {
    AskToStop();
    if (thread_.joinable()) thread_.join();
  }
  void Restart() {
    Stop();
    Start();
  }

 private:
  void Start() {
    stop_ = false;
    listener_ = transport_.Listen(address_, {}, limits_);
    server_ = std::make_unique<ParameterServer>(*listener_, options_);
    thread_ = std::thread([this] {
      listener_->Run(*server_, [this] { return stop_.load(); });
      server_.reset();
      listener_.reset();
    });
  }

  Transport& transport_;
  std::string address_;
  const ParameterServerOptions options_;
  const Limits limits_;
  std::unique_ptr<ServerTransport> listener_;
  std::unique_ptr<ParameterServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

inline RunTerms TestTerms(Pace pace, int workers = 1, int servers = 1) {
  return {.version = "1",
          .env = "Env",
          .algo = "algo",
          .network = "net",
          .seed = 7,
          .params = 5000,
          .work_shards = 8,
          .servers = servers,
          .pace = pace,
          .workers = workers,
          .lease_s = 5,
          .round_s = 60,
          .optimizer = {}};
}

// The servers of a run.
class TestCluster {
 public:
  explicit TestCluster(RunTerms terms, bool files = false, const Limits& limits = {})
      : terms(std::move(terms)) {
    for (int i = 0; i < this->terms.servers; ++i) {
      ParameterServerOptions options;
      if (files) options.folder = folder_.path() + "/" + std::to_string(i);
      servers.push_back(std::make_unique<RunningServer>(network.memory, "server:0", options, limits));
    }
  }

  ~TestCluster() {
    for (const auto& server : servers) server->AskToStop();
  }

  std::vector<ServerPlace> Places(Transport& transport, double patience_s = 30) const {
    std::vector<ServerPlace> places;
    for (const auto& server : servers) places.push_back({&transport, server->address(), {}, patience_s});
    return places;
  }
  std::string folder() const { return folder_.path(); }

  RunTerms terms;
  TestNetwork network;
  std::vector<std::unique_ptr<RunningServer>> servers;

 private:
  TempFolder folder_;
};

// Values that differ in magnitude.
inline std::vector<float> Draw(std::uint32_t entity, std::uint64_t step, std::size_t size) {
  RandomStream random(21, Purpose::kTest, entity, step);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(random.NextNormal() * std::exp(random.NextNormal()));
  return values;
}
inline std::vector<float> Initial(const RunTerms& terms) { return Draw(1000, 0, terms.params); }
inline std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

// One worker with all it needs.
class TestWorker {
 public:
  explicit TestWorker(TestCluster& cluster, std::uint64_t id, bool overlap = false, double patience_s = 30)
      : TestWorker(cluster, cluster.terms, id, overlap, patience_s) {}
  TestWorker(TestCluster& cluster, const RunTerms& terms, std::uint64_t id, bool overlap, double patience_s,
             bool candidate = true)
      : wire(cluster.network),
        heartbeat_wire(cluster.network),
        session(cluster.Places(wire, patience_s), terms, id, candidate),
        comm(session),
        store(terms.pace == Pace::kSync ? MakeSyncServerStore(session, comm)
                                        : MakeAsyncServerStore(session, overlap)),
        heartbeat(
            std::make_unique<Heartbeat>(cluster.Places(heartbeat_wire), std::vector{id}, terms.lease_s)) {
    session.Offer(Initial(terms));
  }

  // Dies without a word.
  void Die() {
    wire.Freeze();
    heartbeat_wire.Freeze();
  }
  void Revive() {
    wire.Thaw();
    heartbeat_wire.Thaw();
  }

  Wire wire, heartbeat_wire;
  ServerSession session;
  ServerCommunicator comm;
  std::unique_ptr<ServerStore> store;
  std::unique_ptr<Heartbeat> heartbeat;
};

// Runs `body` on a thread for each of `count`, and waits. What a body throws fails the test.
inline void OnThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "thread " << i << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trireme
