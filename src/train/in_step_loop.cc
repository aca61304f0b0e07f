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
    if (const std::optional<Decision> entered = worker_.TakeEntry()) {
      return entered->again ? Announce(worker_.Decide()).decision : *entered;
    }
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
    if (worker_.EvaluationDue()) {
      worker_.ShowCommonParams();
      worker_.Evaluate(row);
    }
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

  // Whoever could lead may have been left behind by the others. Then they decide nothing before it is back.
  Boundary Announce(const Decision& decision) {
    for (;;) {
      const bool nobody_leads = links_.open() && links_.leader() < 0;
      if (nobody_leads && links_.ended()) return {{.stop = true}};
      Boundary own{nobody_leads ? Decision{.again = true} : decision};
      if (links_.open() && (nobody_leads || links_.leads())) own.common = worker_.Common();
      Boundary boundary = links_.Announce(own, worker_.progress());
      if (!boundary.decision.again) return boundary;
    }
  }

  // The others wait while the leader writes, so that a failure to write reaches everyone. Where it may be gone
  // meanwhile another one leads, and must write its own.
  bool Follow(Decision decision) {
    if (decision.hand_in != HandIn::kNothing || decision.stop) worker_.ShowCommonParams();
    while (decision.hand_in != HandIn::kNothing) {
      const bool written = worker_.Gather(decision.hand_in);
      if (!links_.open()) {
        links_.everyone().Barrier();
        break;
      }
      decision = Announce(written ? Decision{.stop = decision.stop} : decision).decision;
    }
    if (!decision.stop) worker_.ShowOwnParams();
    worker_.SetInterrupted(decision.stop && !worker_.Done());
    return !decision.stop;
  }

  Worker& worker_;
  InStepLinks& links_;
};

}  // namespace

std::unique_ptr<WorkerLoop> InStepLinks::MakeLoop(Worker& worker) {
  return std::make_unique<InStepLoop>(worker, *this);
}

}  // namespace trireme
