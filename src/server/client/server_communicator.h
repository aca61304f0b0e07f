// Collective operations of workers in step, through the first server of their run.
//
// Unlike a group of threads or of MPI processes this one is elastic. Operations go on without workers that
// were given up: sums are over those that took part, and "rank 0" is the lowest rank that does. Newcomers
// enter at a boundary. A worker that the others have left behind gets FellBehind and must join again.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/server/client/server_session.h"

namespace trireme {

class ServerCommunicator final : public Communicator {
 public:
  explicit ServerCommunicator(ServerSession& session) : session_(session) {}

  int rank() const override { return session_.rank(); }
  int size() const override { return session_.terms().workers; }
  void Barrier() override;
  void Broadcast(std::span<float> values) override;
  void Broadcast(std::span<double> values) override;
  void Broadcast(std::string& bytes) override;
  void ReduceSum(std::span<float> values) override;
  void ReduceSum(std::span<double> values) override;
  void AllReduceSum(std::span<float> values) override;
  void AllReduceSum(std::span<double> values) override;
  std::vector<std::string> Gather(std::string bytes) override;
  // All workers call it where others may enter. Returns what the leader brought; whoever waits to take part
  // enters with the same. `open`: what this worker brings is enough to begin with, should it be the leader's.
  std::string Boundary(std::string_view bytes, bool open);
  Traffic traffic() const override { return {}; }  // the session's, which the store counts
  void Abort() override {}

 private:
  // values <- the result. Returns the bytes of the result.
  std::string Collect(Collective operation, std::uint32_t flags, std::span<double> values,
                      std::string_view bytes = {});
  void CollectFloats(Collective operation, std::uint32_t flags, std::span<float> values);

  ServerSession& session_;
};

}  // namespace trireme
