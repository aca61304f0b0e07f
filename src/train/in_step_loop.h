// Workers in step: all iterate, and evaluate when it is due, together. Then the leader decides (checkpoint?
// stop?), because clocks and signals differ between workers, and all do what was decided. Where workers may come and go they do so at
// the boundary between two iterations.
#pragma once

#include <cstdint>

#include "trireme/train/boundary.h"
#include "trireme/train/topology.h"

namespace trireme {

// What the loop needs of the links.
class InStepLinks : public WorkerLinks {
 public:
  using WorkerLinks::WorkerLinks;

  // Whether workers may come and go while the run goes on: then the leader brings to a boundary all that a
  // newcomer needs.
  virtual bool open() const = 0;
  // All call it at the end of an iteration, each with what it would decide. Returns what the leader brought; in
  // `progress` is then what its progress says of the run.
  virtual Boundary Announce(const Boundary& own, RunProgress& progress) = 0;
  // This worker has made so many steps.
  virtual void AddSteps(std::int64_t steps) = 0;
  // Whether it is over for this worker: the others have ended the run; or nobody leads, and whoever could of this process
  // has left.
  virtual bool ended() const = 0;
  // This worker goes; unless it was interrupted, because the run is over.
  virtual void Leave(bool interrupted) = 0;

  std::unique_ptr<WorkerLoop> MakeLoop(Worker& worker) final;
};

// Of workers that are all there from the start to the end, and that rank 0 leads.
class ClosedInStepLinks : public InStepLinks {
 public:
  using InStepLinks::InStepLinks;

  Entry Join(std::int64_t) override { return {}; }
  int leader() const override { return 0; }
  bool led_elsewhere() const override { return false; }  // what stops one process stops all
  bool open() const override { return false; }
  Boundary Announce(const Boundary& own, RunProgress&) override {
    return {BroadcastDecision(everyone(), own.decision)};
  }
  void AddSteps(std::int64_t) override {}
  bool ended() const override { return false; }
  void Leave(bool) override {}
};

}  // namespace trireme
