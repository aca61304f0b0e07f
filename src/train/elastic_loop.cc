#include "trireme/train/elastic_loop.h"

#include <chrono>
#include <thread>
#include <utility>

#include "trireme/train/worker.h"

namespace trireme {
namespace {

class ElasticLoop final : public WorkerLoop {
 public:
  ElasticLoop(Worker& worker, ServerSession& session, ServerStore& store)
      : worker_(worker), session_(session), store_(store) {}

  void Run() override {
    if (worker_.Done() && session_.leads()) session_.Finish();
    if (!session_.leads()) worker_.DropPending();
    while (!session_.finished()) {
      if (worker_.StepsDone() && !session_.leads()) {
        // Only an evaluation is missing, or a leader to make it.
        if (worker_.StopRequested()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        session_.Pull(true);
        continue;
      }
      MetricRow row = std::exchange(worker_.progress().pending_row, {});
      if (!worker_.progress().eval_pending) CountSteps(worker_.Iterate(row));
      if (session_.leads() ? !Lead(row) : worker_.StopRequested()) break;
    }
    worker_.SetInterrupted(!session_.finished());
    session_.Rest();  // siblings that are ahead wait for nobody who has stopped
    worker_.ledger().GatherOrKeepOwn();
    worker_.SumAccounts();
    if (worker_.has_led()) worker_.WriteCheckpoint();
  }

 private:
  void CountSteps(std::int64_t steps) {
    worker_.ledger().AddSteps(steps);
    session_.AddSteps(steps);
    worker_.progress().steps = session_.steps();
  }

  // What the leader does between two iterations. False when the run ends.
  bool Lead(MetricRow& row) {
    if (worker_.EvaluationDue()) {
      store_.Refresh();
      worker_.Evaluate(row);
    }
    worker_.Report(row);
    const Decision decision = worker_.Decide();
    if (!decision.stop) {
      if (decision.hand_in != HandIn::kNothing) {
        worker_.ledger().KeepOwn();
        worker_.WriteCheckpoint();
      }
      return true;
    }
    if (worker_.Done()) {
      // Others have gone on since; what the run leaves is what was evaluated.
      store_.Keep(store_.params());
      session_.Finish();
    }
    return false;
  }

  Worker& worker_;
  ServerSession& session_;
  ServerStore& store_;
};

}  // namespace

std::unique_ptr<WorkerLoop> MakeElasticLoop(Worker& worker, ServerSession& session, ServerStore& store) {
  return std::make_unique<ElasticLoop>(worker, session, store);
}

}  // namespace trireme
