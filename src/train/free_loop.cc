#include "trireme/train/free_loop.h"

#include <utility>
#include <vector>

#include "trireme/train/worker.h"

namespace trireme {
namespace {

class FreeLoop final : public WorkerLoop {
 public:
  FreeLoop(Worker& worker, WorkerLinks& links, FreeWorkers& all,
           std::function<void(std::span<const float>)> assign)
      : worker_(worker), links_(links), all_(all), assign_(std::move(assign)) {}

  void Run() override {
    worker_.ledger().Gather();
    if (links_.leads()) all_.steps.store(worker_.progress().steps);
    links_.everyone().Barrier();  // all have loaded their part of a checkpoint
    if (worker_.Done()) return;
    if (!links_.leads()) worker_.DropPending();
    for (bool stop = false; !stop;) {
      MetricRow row = std::exchange(worker_.progress().pending_row, {});
      if (!worker_.progress().eval_pending && !worker_.StepsDone()) CountSteps(worker_.Iterate(row));
      if (links_.leads() && !worker_.StepsDone()) {
        if (worker_.EvaluationDue()) Evaluate(row);
        worker_.Report(row);
        row = {};
        const Decision wanted = Decide();
        if (wanted.hand_in != HandIn::kNothing) all_.meeting.store(true);
      }
      if (worker_.StepsDone() || all_.meeting.load()) stop = Meet(row);
    }
  }

 private:
  void CountSteps(std::int64_t steps) {
    worker_.ledger().AddSteps(steps);
    const std::int64_t made = all_.steps.fetch_add(steps) + steps;
    std::int64_t& known = worker_.progress().steps;
    // Under a schedule a worker counts as if the others kept pace with it: how far they really are depends on
    // time.
    known = all_.schedule ? known + steps * worker_.run().workers : made;
  }

  // While the others go on. Under a schedule the newest parameters are a matter of time, the last seen are not.
  void Evaluate(MetricRow& row) {
    if (!all_.schedule) links_.store().Refresh();
    const bool reached_before = worker_.progress().reached;
    worker_.Evaluate(row);
    if (worker_.run().stop_at_target && worker_.progress().reached && !reached_before) {
      const std::span<const float> params = links_.store().params();
      reached_with_.assign(params.begin(), params.end());
    }
  }

  Decision Decide() const {
    // A meeting in the middle would change the order that a schedule gives.
    return worker_.Decide(/*checkpoints_by_time=*/!all_.schedule);
  }

  // Nobody pulls or pushes meanwhile. Returns whether the run ends here.
  bool Meet(MetricRow& row) {
    if (all_.schedule) all_.schedule->Leave(links_.rank());
    links_.everyone().Barrier();
    worker_.progress().steps = all_.steps.load();
    if (links_.leads()) {
      all_.meeting.store(false);
      if (!reached_with_.empty()) {
        // Others have gone on since; what the run leaves is what was seen to reach the target.
        assign_(reached_with_);
      } else if (worker_.StepsDone()) {
        links_.store().Refresh();
        Evaluate(row);
        worker_.Report(row);
      }
    }
    const Decision decision = BroadcastDecision(links_.everyone(), Decide());
    links_.store().Refresh();
    if (decision.hand_in != HandIn::kNothing) {
      worker_.Gather(decision.hand_in);
      links_.everyone().Barrier();
    }
    worker_.SetInterrupted(decision.stop && !worker_.Done());
    return decision.stop;
  }

  Worker& worker_;
  WorkerLinks& links_;
  FreeWorkers& all_;
  std::function<void(std::span<const float>)> assign_;
  std::vector<float> reached_with_;  // leader: the parameters that reached the target
};

}  // namespace

std::unique_ptr<WorkerLoop> MakeFreeLoop(Worker& worker, WorkerLinks& links, FreeWorkers& all,
                                         std::function<void(std::span<const float>)> assign) {
  return std::make_unique<FreeLoop>(worker, links, all, std::move(assign));
}

}  // namespace trireme
