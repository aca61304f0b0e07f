// How the workers of a run are connected, to each other and to those of other processes. A topology is what
// the workers of one process share; links are the ends of one worker. A store says which it has (stores.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/thread_communicator.h"
#include "trireme/nn/make_executor.h"
#include "trireme/split/network_parts.h"
#include "trireme/split/pipeline_executor.h"
#include "trireme/store/parameter_store.h"
#include "trireme/train/worker_loop.h"

namespace trireme {

// The workers whose gradients make one update, seen from one of them. They hold the same parameters, and the work of
// the update, which is cut into shards, is divided between them.
struct GradientGroup {
  Communicator& comm;  // between them
  int index = 0;       // among groups whose work differs: each has all shards of an update of its own

  // This worker's part of an update that is made of `shards`.
  struct Shards {
    int first, count;
  };
  Shards Own(int shards) const {
    const int count = shards / comm.size();
    return {comm.rank() * count, count};
  }
};

// How a worker fares that computes a network together with others.
struct SplitFacts {
  std::uint64_t model_bytes = 0;  // parameters and moments that it holds; 0: it is alone
  PipelineTimes pipeline;
};

// Belongs to one worker; destroyed, it leaves the run.
class WorkerLinks {
 public:
  WorkerLinks(ThreadGroup& threads, int thread) : threads_(threads, thread) {}
  virtual ~WorkerLinks() = default;
  WorkerLinks(const WorkerLinks&) = delete;
  WorkerLinks& operator=(const WorkerLinks&) = delete;

  // Between the threads of this process.
  ThreadCommunicator& threads() { return threads_; }
  int thread() const { return threads_.rank(); }

  // Between the workers that meet, to decide and to hand in what they have: all that move in step, and otherwise those
  // of this process.
  virtual Communicator& everyone() = 0;
  // Those that train on one update with this worker: in step all of them, unless some only collect, or several compute one
  // network together and each sums with those that hold the same part of it. Who moves on its own is alone. Known after
  // Join.
  virtual GradientGroup gradient_group() = 0;
  virtual ParameterStore& store() = 0;
  // Those that compute one network with this worker, and what of it this one holds; null: it holds all. They make the
  // same calls at the same time, on the same experience: the shards of their gradient groups are the same.
  virtual const NetworkShare* share() const { return nullptr; }
  virtual SplitFacts split_facts() const { return {}; }
  // What the ways to everyone, and to those of smaller groups, have cost this worker.
  virtual Traffic traffic() { return everyone().traffic(); }
  // What the ways to others have carried, and how fast they are.
  virtual std::vector<ProcessLink> links() = 0;

  // How a worker comes to take part where others may have begun before: with what their leader said at a
  // boundary (boundary.h). If they are there, at that boundary; if they are gone, after it.
  struct Entry {
    std::string boundary;  // empty: nobody has begun before
    bool others_are_there = false;
    std::optional<std::int64_t> steps;  // of the run, where the workers do not count for themselves
    std::string ended;                  // who says that the run is over; empty: it is not
  };
  // Takes part from now on. `steps` were made before, as far as this worker knows. Blocks. Throws Error.
  virtual Entry Join(std::int64_t steps) = 0;

  // Bytes of state that each worker may hand in to the leader.
  virtual std::size_t most_state() const { return std::numeric_limits<std::size_t>::max(); }

  // Known after Join. Rank and leader count through the workers of the run; -1: nobody leads for the moment.
  virtual int rank() const = 0;
  virtual int leader() const = 0;
  // Whether this worker evaluates, decides and keeps the files.
  bool leads() const { return leader() == rank(); }
  // Whether a worker of another process leads, one that need not know what happens to this process.
  virtual bool led_elsewhere() const = 0;

  // What computes `network` for this worker, on its device: alone, unless it computes one together with
  // others of the run. Both outlive the executor. Throws Error.
  virtual std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing& computing) {
    return trireme::MakeExecutor(network, computing);
  }

  // How `worker`, whose links these are, runs. Both outlive the loop.
  virtual std::unique_ptr<WorkerLoop> MakeLoop(Worker& worker) = 0;

 private:
  ThreadCommunicator threads_;
};

// Connect may be called by several threads at once.
class Topology {
 public:
  explicit Topology(int workers) : threads_(workers) {}
  virtual ~Topology() = default;
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // The ends of thread `thread` of this process. Throws Error.
  virtual std::unique_ptr<WorkerLinks> Connect(int thread) = 0;
  // A worker has failed: ends every wait. Those that can go on without it then stop as if they had been told
  // to; others fail.
  void Abort() {
    failed_.store(true);
    EndWaits();
    ThreadCommunicator(threads_, 0).Abort();
  }
  bool failed() const { return failed_.load(); }

 protected:
  // Those that are not waits of threads for each other.
  virtual void EndWaits() = 0;

  ThreadGroup threads_;

 private:
  std::atomic<bool> failed_{false};
};

}  // namespace trireme
