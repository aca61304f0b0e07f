// Tells all servers of a run, from a thread of its own, that the workers of this process live, whatever they
// are busy with. A process that is killed or frozen falls silent, and its workers lose their leases.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/server/client/server_link.h"

namespace trireme {

class Heartbeat {
 public:
  Heartbeat(std::vector<ServerPlace> places, std::vector<std::uint64_t> workers, double lease_s);
  ~Heartbeat();

 private:
  void Run(double every_s);

  std::vector<ServerPlace> places_;
  std::vector<std::uint64_t> workers_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace trireme
