// A way in which a worker runs, from its start to the end of the run. What all of them are made of (iterate,
// evaluate, report, write a checkpoint) is the worker's; when to do it, and whom to wait for, is the loop's:
//
//   in_step_loop.h  all iterate together and meet at a boundary after each iteration
//   free_loop.h     each iterates on its own; all meet for checkpoints and at the end
//   elastic_loop.h  each iterates on its own and meets nobody; servers count the steps and say who leads
#pragma once

namespace trireme {

class Worker;

class WorkerLoop {
 public:
  virtual ~WorkerLoop() = default;
  // Blocks until the run ends, for this worker at least. Throws Error.
  virtual void Run() = 0;
};

}  // namespace trireme
