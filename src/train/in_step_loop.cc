#include "trireme/train/in_step_loop.h"

#include <utility>

#include "trireme/server/client/server_session.h"
#include "trireme/train/worker.h"

namespace trireme {
namespace {

class InStepLoop final : public WorkerLoop {
 public:
  InStepLoop(Worker& worker, InStepLinks& links) : worker_(worker), links_(links) {}

  void Run() override {
    if (!links_.open()) worker_.ledger().Gather();
    for (bool begins = true, more = true; more;) {
      try {
        const Decision decision = std::exchange(begins, false) ? Begin() : Step();
        more = Follow(decision);
      } catch (const FellBehind&) {
        worker_.Enter({});  // the others have left this worker behind
        begins = true;
      }
    }
    links_.Leave(worker_.interrupted());
    if (!links_.open() || !worker_.ledger().accounts().empty()) return;
    worker_.ledger().KeepOwn();  // the leader, who knows of all, is elsewhere
    worker_.SumAccounts();
  }

 private:
  // Where this worker comes in: at the start of the run, or between two iterations of the others. Those that
  // begin together may each have come with something else; all begin with what their leader has.
  Decision Begin() {
    if (links_.ended()) return {.stop = true};
    if (const std::optional<Decision> entered = worker_.TakeEntry()) return *entered;
    const Decision decision{.stop = worker_.Done()};
    if (!links_.open()) return decision;
    const Boundary boundary = Announce(decision);
    worker_.LoadCommon(boundary);
    return boundary.decision;
  }

  // One iteration of all; after an evaluation that was stopped, that evaluation.
  Decision Step() {
    MetricRow row = std::exchange(worker_.progress().pending_row, {});
    if (!worker_.progress().eval_pending) Iterate(row);
    if (worker_.EvaluationDue()) worker_.Evaluate(row);
    if (links_.leads()) {
      worker_.Report(row);
    } else if (worker_.StopRequested() && links_.led_elsewhere()) {
      return {.stop = true};  // leaves; the others go on
    }
    return Announce(worker_.Decide()).decision;
  }

  void Iterate(MetricRow& row) {
    const std::int64_t steps = worker_.Iterate(row), own = steps / links_.gradient_group().comm.size();
    worker_.ledger().AddSteps(own);
    worker_.progress().steps += steps;
    links_.AddSteps(own);
  }

  Boundary Announce(Decision decision) {
    Boundary own{decision};
    if (links_.open() && links_.leads()) own.common = worker_.Common();
    return links_.Announce(own, worker_.progress());
  }

  bool Follow(const Decision& decision) {
    if (decision.hand_in != HandIn::kNothing) Gather(decision.hand_in);
    worker_.SetInterrupted(decision.stop && !worker_.Done());
    return !decision.stop;
  }

  // The others wait while the leader writes, so that a failure to write reaches everyone. Where it may be gone
  // meanwhile another one leads, and must write its own.
  void Gather(HandIn what) {
    for (double written = 0; written == 0;) {
      if (worker_.Gather(what)) written = 1;
      if (!links_.open()) return links_.everyone().Barrier();
      links_.everyone().Broadcast(std::span(&written, 1));
    }
  }

  Worker& worker_;
  InStepLinks& links_;
};

}  // namespace

std::unique_ptr<WorkerLoop> InStepLinks::MakeLoop(Worker& worker) {
  return std::make_unique<InStepLoop>(worker, *this);
}

}  // namespace trireme
