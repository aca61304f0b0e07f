#include "trireme/train/shared_topology.h"

#include "trireme/comm/group_of_one.h"
#include "trireme/store/shared_store.h"
#include "trireme/train/free_loop.h"
#include "trireme/train/run_config.h"

namespace trireme {
namespace {

struct SharedMemory {
  SharedParameters params;
  FreeWorkers workers = {};
};

class SharedLinks final : public WorkerLinks {
 public:
  SharedLinks(SharedMemory& memory, ThreadGroup& group, int thread)
      : WorkerLinks(group, thread),
        memory_(memory),
        store_(MakeSharedStore(memory.params, thread,
                               memory.workers.schedule ? &*memory.workers.schedule : nullptr)) {}

  Communicator& everyone() override { return threads(); }
  GradientGroup gradient_group() override { return {alone_.comm(), rank()}; }
  ParameterStore& store() override { return *store_; }
  std::vector<ProcessLink> links() override { return threads().links(); }
  Entry Join(std::int64_t) override { return {}; }
  int rank() const override { return thread(); }
  int leader() const override { return 0; }
  bool led_elsewhere() const override { return false; }
  std::unique_ptr<WorkerLoop> MakeLoop(Worker& worker) override {
    return MakeFreeLoop(worker, *this, memory_.workers,
                        [this](std::span<const float> params) { memory_.params.Assign(params); });
  }

 private:
  SharedMemory& memory_;
  GroupOfOne alone_;
  std::unique_ptr<ParameterStore> store_;
};

class SharedTopology final : public Topology {
 public:
  explicit SharedTopology(const RunContext& context)
      : Topology(context.settings.run.workers),
        memory_{.params = {context.settings.algorithm->optimizer(), context.settings.run.share_moments,
                           context.initial}} {
    const RunConfig& run = context.settings.run;
    if (!run.schedule.empty()) memory_.workers.schedule.emplace(run.schedule, run.workers);
  }

  std::unique_ptr<WorkerLinks> Connect(int thread) override {
    return std::make_unique<SharedLinks>(memory_, threads_, thread);
  }

 private:
  void EndWaits() override {
    memory_.workers.meeting.store(true);
    if (memory_.workers.schedule) memory_.workers.schedule->Abort();
  }

  SharedMemory memory_;
};

}  // namespace

std::unique_ptr<Topology> MakeSharedTopology(const RunContext& context) {
  return std::make_unique<SharedTopology>(context);
}

}  // namespace trireme
