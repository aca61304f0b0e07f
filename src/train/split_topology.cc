#include "trireme/train/split_topology.h"

#include <optional>

#include "trireme/comm/funnel.h"
#include "trireme/comm/hybrid_communicator.h"
#include "trireme/split/part_norms.h"
#include "trireme/split/tensor_executor.h"
#include "trireme/train/in_step_loop.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

class SplitLinks final : public ClosedInStepLinks {
 public:
  // `funnel`: for groups inside one of several processes.
  SplitLinks(const RunContext& context, const NetworkParts& parts, Funnel* funnel, ThreadGroup& group,
             int thread)
      : ClosedInStepLinks(group, thread), rule_(context.settings.algorithm->optimizer()) {
    const int members = parts.members();
    PeerCommunicator* const processes = context.options.processes;
    if (processes != nullptr) everyone_.emplace(threads(), processes, processes->rank(), processes->size());
    if (group.size() % members == 0) {
      members_ = threads().Split(thread / members);
      same_part_ = threads().Split(thread % members);
      if (funnel != nullptr) {
        if (same_part_->rank() == 0) funnel_end_.emplace(*funnel, thread % members);
        same_part_everywhere_.emplace(*same_part_, funnel_end_ ? &*funnel_end_ : nullptr, processes->rank(),
                                      processes->size());
      }
    } else {
      TRIREME_CHECK(group.size() == 1 && processes != nullptr);
      members_ = processes->Split(processes->rank() / members);
      same_part_ = processes->Split(processes->rank() % members);
    }
    share_.emplace(parts, *members_);
    norms_.emplace(*share_);
    std::vector<float> initial(share_->network().param_count());
    share_->Take(context.initial, initial);
    store_ =
        MakeAllReduceStore(gradient_group().comm, context.settings.algorithm->optimizer(), initial, &*norms_);
  }

  Communicator& everyone() override {
    return everyone_ ? static_cast<Communicator&>(*everyone_) : static_cast<Communicator&>(threads());
  }
  GradientGroup gradient_group() override {
    return {same_part_everywhere_ ? static_cast<Communicator&>(*same_part_everywhere_) : *same_part_};
  }
  ParameterStore& store() override { return *store_; }
  const NetworkShare* share() const override { return &*share_; }
  SplitFacts split_facts() const override {
    return {.model_bytes = share_->network().param_count() * (1 + rule_.moments()) * sizeof(float),
            .pipeline = times_};
  }
  // What goes through the funnel is counted by everyone's way between the processes.
  Traffic traffic() override {
    Traffic traffic = everyone().traffic();
    traffic += members_->traffic();
    traffic += same_part_->traffic();
    return traffic;
  }
  std::vector<ProcessLink> links() override {
    std::vector<ProcessLink> all = everyone().links();
    for (const PeerCommunicator* group : {members_.get(), same_part_.get()}) {
      for (const ProcessLink& link : group->links()) all.push_back(link);
    }
    return all;
  }
  int rank() const override { return everyone_ ? everyone_->rank() : thread(); }

  std::unique_ptr<Executor> MakeExecutor(const Network&, const Computing&) override {
    if (share_->parts().split().kind == ModelSplit::Kind::kTensor)
      return std::make_unique<TensorExecutor>(*share_);
    return std::make_unique<PipelineExecutor>(*share_, *members_, times_);
  }

 private:
  const OptimizerRule rule_;
  std::optional<HybridCommunicator> everyone_;   // where there are several processes
  std::unique_ptr<PeerCommunicator> members_;    // of this worker's group
  std::unique_ptr<PeerCommunicator> same_part_;  // those that hold the same, of this process or of all
  std::optional<FunnelCommunicator> funnel_end_;
  std::optional<HybridCommunicator> same_part_everywhere_;  // where groups lie inside processes
  std::optional<NetworkShare> share_;
  std::optional<PartNorms> norms_;
  PipelineTimes times_;
  std::unique_ptr<ParameterStore> store_;
};

class SplitTopology final : public Topology {
 public:
  explicit SplitTopology(const RunContext& context)
      : Topology(context.settings.run.workers),
        context_(context),
        parts_(context.network, context.settings.run.split()) {
    PeerCommunicator* const processes = context.options.processes;
    if (processes != nullptr && threads_.size() % parts_.members() == 0)
      funnel_.emplace(*processes, parts_.members());
  }

  std::unique_ptr<WorkerLinks> Connect(int thread) override {
    return std::make_unique<SplitLinks>(context_, parts_, funnel_ ? &*funnel_ : nullptr, threads_, thread);
  }

 private:
  void EndWaits() override {
    if (funnel_) funnel_->Abort();
    if (context_.options.processes != nullptr) context_.options.processes->Abort();
  }

  const RunContext context_;
  const NetworkParts parts_;
  std::optional<Funnel> funnel_;
};

}  // namespace

std::unique_ptr<Topology> MakeSplitTopology(const RunContext& context) {
  return std::make_unique<SplitTopology>(context);
}

}  // namespace trireme
