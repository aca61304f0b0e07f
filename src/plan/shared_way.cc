#include "trireme/base/error.h"
#include "trireme/plan/engine.h"
#include "trireme/plan/ways.h"

namespace trireme {
namespace {

// Threads on one parameter buffer: no messages, nothing to wait for. What remains to simulate is how many
// updates of others come between a worker's pull and its push.
class SharedWay final : public Engine::Actor {
 public:
  SharedWay(const PlanConstants& constants, const Scenario& scenario)
      : crew_(constants, scenario, constants.shared_s_per_float * constants.floats),
        engine_(constants.network, constants.loopback, crew_.HostOfEach()),
        seen_(crew_.workers()) {
    TRIREME_CHECK(crew_.hosts() == 1);
  }

  Outcome Run() {
    for (int worker = 0; worker < crew_.workers(); ++worker) {
      engine_.After(crew_.NextCompute(worker), worker, 0);
    }
    engine_.Run(*this);
    Outcome outcome = crew_.Summarise(/*communication_s=*/0);
    outcome.staleness = staleness_;
    outcome.events = engine_.events();
    return outcome;
  }

 private:
  void OnTimer(int worker, int) override {
    staleness_.Add(version_ - seen_[worker]);
    seen_[worker] = ++version_;
    crew_.Finish(worker, engine_.now_s());
    if (crew_.AllDone()) {
      engine_.Stop();
    } else {
      engine_.After(crew_.NextCompute(worker), worker, 0);
    }
  }
  void OnMessage(const Message&) override {}

  Crew crew_;
  Engine engine_;
  std::uint64_t version_ = 0;        // pushes so far
  std::vector<std::uint64_t> seen_;  // version of each worker's last pull
  Staleness staleness_;
};

}  // namespace

Outcome SimulateShared(const PlanConstants& constants, const Scenario& scenario) {
  return SharedWay(constants, scenario).Run();
}

}  // namespace trireme
