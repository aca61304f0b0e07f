#include "trireme/train/communicator_topology.h"

#include <optional>

#include "trireme/comm/hybrid_communicator.h"
#include "trireme/store/gradient_sum.h"
#include "trireme/train/in_step_loop.h"
#include "trireme/train/run_config.h"
#include "trireme/train/split_topology.h"
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
    store_ = MakeStore(context);
  }

  Communicator& everyone() override {
    return hybrid_ ? static_cast<Communicator&>(*hybrid_) : static_cast<Communicator&>(threads());
  }
  GradientGroup gradient_group() override { return {everyone()}; }
  ParameterStore& store() override { return *store_; }
  std::vector<ProcessLink> links() override { return everyone().links(); }
  int rank() const override { return hybrid_ ? hybrid_->rank() : thread(); }

 private:
  std::unique_ptr<ParameterStore> MakeStore(const RunContext& context) {
    const RunConfig& run = context.settings.run;
    const OptimizerSettings& optimizer = context.settings.algorithm->optimizer();
    Communicator& comm = gradient_group().comm;
    if (run.local_steps > 0) return MakeLocalStepsStore(comm, optimizer, context.initial, run.local_steps);
    const std::string codec = run.gradient_codec();
    return MakeAllReduceStore(comm, optimizer, context.initial,
                              codec == kNoCodec
                                  ? MakePlainSum(comm)
                                  : MakeCompressedSum(threads(), context.options.processes, run.processes,
                                                      codec, context.initial.size()));
  }

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
  if (context.settings.run.split().splits()) return MakeSplitTopology(context);
  return std::make_unique<CommunicatorTopology>(context);
}

}  // namespace trireme
