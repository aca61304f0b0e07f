// How the workers of a process are connected, to each other and to those of other processes.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/hybrid_communicator.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/nn/network.h"
#include "trireme/server/client/heartbeat.h"
#include "trireme/server/client/local_servers.h"
#include "trireme/server/client/server_communicator.h"
#include "trireme/server/client/server_store.h"
#include "trireme/store/shared_store.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme {

// What the workers of one process need to find the servers of their run.
struct ServerGroup {
  // Starts servers if the settings say so; they live below `folder`. Throws Error.
  // `stopped` ends waits for them.
  ServerGroup(const RunSettings& settings, const Network& network, const TrainOptions& options,
              const RunFolder& folder, const std::function<bool()>& stopped);
  ~ServerGroup();

  // Where thread `thread` lists its acknowledged pushes; empty: nowhere.
  std::string AuditOf(int thread) const;

  std::unique_ptr<LocalServers> local;
  std::filesystem::path local_folder;
  std::function<void(const std::string&)> say;
  std::vector<ServerPlace> places;
  RunTerms terms;
  std::vector<std::uint64_t> ids;        // of the workers of this process
  std::unique_ptr<Heartbeat> heartbeat;  // for all of them
  std::filesystem::path audit;           // a folder; empty: none
  std::atomic<int> first_rank{-1};       // of the first thread, the one that may lead
  std::atomic<int> joined{0};            // threads join in their order, so that ranks follow it
};

// What the workers of one process share. `processes`: see TrainOptions; only the first thread uses it.
struct WorkerGroup {
  WorkerGroup(const RunSettings& settings, const Network& network, const TrainOptions& options,
              const RunFolder* folder, std::span<const float> initial);

  // A worker has failed: ends every wait, of barriers, of turns and for servers. Those on servers then stop
  // as if they had been told to; others fail.
  void Abort();

  ThreadGroup threads;
  Communicator* const processes;
  std::atomic<bool> failed{false};  // a worker has

  // Store shared only.
  std::optional<SharedParameters> shared;
  std::optional<Schedule> schedule;
  std::atomic<std::int64_t> steps{0};  // of all workers
  std::atomic<bool> meeting{false};    // all are to come together after their current iteration

  std::optional<ServerGroup> servers;  // store server only
};

// The ends of one worker.
class WorkerLinks {
 public:
  WorkerLinks(const RunSettings& settings, WorkerGroup& group, int thread, std::span<const float> initial);
  ~WorkerLinks();  // leaves the run

  // Between the threads of this process.
  ThreadCommunicator& threads() { return threads_; }
  // Between the workers that meet: all that move in step, and otherwise those of this process.
  Communicator& comm() { return *comm_; }
  ParameterStore& store() { return *store_; }
  const ParameterStore& store() const { return *store_; }
  // Of store server; else null.
  ServerSession* session() { return session_.get(); }
  ServerStore* server_store() { return server_store_; }
  // Whether this worker evaluates, decides and keeps the files.
  bool leads() const { return session_ ? session_->leads() : comm_->rank() == 0; }
  // Whether a worker of another process does, one that need not know what happens to this process.
  bool led_elsewhere() const { return session_ && session_->leader() != group_.servers->first_rank.load(); }
  // Takes part from now on, where taking part has a beginning. Throws Error.
  ServerSession::Entry Join();
  // Whether others may enter while the run goes on in step: then boundaries go through the servers.
  ServerCommunicator* boundaries() { return through_server_.get(); }

 private:
  WorkerGroup& group_;
  ThreadCommunicator threads_;
  std::optional<HybridCommunicator> hybrid_;  // where there are several processes of MPI
  std::unique_ptr<ServerSession> session_;
  std::unique_ptr<ServerCommunicator> through_server_;
  Communicator* comm_;
  std::unique_ptr<ParameterStore> store_;
  ServerStore* server_store_ = nullptr;
};

}  // namespace trireme
