#include "trireme/train/communicator_topology.h"

#include <optional>

#include "trireme/comm/hybrid_communicator.h"
#include "trireme/train/in_step_loop.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

class CommunicatorLinks final : public ClosedInStepLinks {
 public:
  CommunicatorLinks(const RunContext& context, ThreadGroup& group, int thread)
      : ClosedInStepLinks(group, thread) {
    if (Communicator* const processes = context.options.processes) {
      hybrid_.emplace(threads(), processes, processes->rank(), processes->size());
    }
    store_ =
        MakeAllReduceStore(gradient_group().comm, context.settings.algorithm->optimizer(), context.initial);
  }

  Communicator& everyone() override {
    return hybrid_ ? static_cast<Communicator&>(*hybrid_) : static_cast<Communicator&>(threads());
  }
  GradientGroup gradient_group() override { return {everyone()}; }
  ParameterStore& store() override { return *store_; }
  std::vector<ProcessLink> links() override { return everyone().links(); }
  int rank() const override { return hybrid_ ? hybrid_->rank() : thread(); }

 private:
  std::optional<HybridCommunicator> hybrid_;  // where there are several processes
  std::unique_ptr<ParameterStore> store_;
};

class CommunicatorTopology final : public Topology {
 public:
  explicit CommunicatorTopology(const RunContext& context)
      : Topology(context.settings.run.workers), context_(context) {}

  std::unique_ptr<WorkerLinks> Connect(int thread) override {
    return std::make_unique<CommunicatorLinks>(context_, threads_, thread);
  }

 private:
  void EndWaits() override {
    if (context_.options.processes != nullptr) context_.options.processes->Abort();
  }

  const RunContext context_;
};

}  // namespace

std::unique_ptr<Topology> MakeCommunicatorTopology(const RunContext& context) {
  return std::make_unique<CommunicatorTopology>(context);
}

}  // namespace trireme
