#include "trireme/train/server_topology.h"

#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "trireme/base/scratch_folder.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/optim/clip.h"
#include "trireme/server/client/heartbeat.h"
#include "trireme/server/client/local_servers.h"
#include "trireme/server/client/server_communicator.h"
#include "trireme/server/payload.h"
#include "trireme/train/elastic_loop.h"
#include "trireme/train/in_step_loop.h"
#include "trireme/train/run_state.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

RunTerms TermsOf(const RunContext& context, int servers) {
  const RunConfig& run = context.settings.run;
  return {.version = context.options.version,
          .env = run.env_identity(),
          .algo = run.algo,
          .network = DescribeNetwork(context.network.spec()),
          .seed = run.seed,
          .params = context.network.param_count(),
          .work_shards = run.shards,
          .servers = servers,
          .pace = run.server.pace,
          .workers = run.in_step() ? run.total_workers() : 1,
          .backup_workers = run.server.backup_workers,
          .staleness_bound = run.server.staleness_bound,
          .staleness_scaled = run.server.staleness_scaled,
          .lease_s = run.server.lease_s,
          .round_s = run.server.round_s,
          .compress = run.gradient_codec(),
          .compress_params = run.params_codec(),
          .precision = std::string(NameOf(run.in_step() ? run.precision : Precision::kFp32)),
          .optimizer = context.settings.algorithm->optimizer()};
}

std::uint64_t DrawId() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) | 1;  // 0 stands for nobody
}

// The servers of a run and, if this process has started them, their lives.
class Servers {
 public:
  Servers(const RunContext& context, const std::function<bool()>& stopped) {
    const ServerConfig& config = context.settings.run.server;
    const TrainOptions& options = context.options;
    if (const int count = config.local(); count > 0) Start(count, context);
    for (const std::string& address : local_ ? local_->addresses() : config.List()) {
      places_.push_back(
          {&TransportFor(address), address, local_ ? Security() : options.security, config.wait_s, stopped});
    }
    if (options.audit && context.folder == nullptr)
      Fail("audit lists pushes in the folder of a run, and this one has none");
    if (options.audit) audit_ = context.folder->path();
  }
  // The checkpoint has what they had; their logs have room for much more.
  ~Servers() {
    if (!local_) return;
    local_.reset();
    std::error_code ignored;
    if (audit_.empty()) fs::remove_all(folder_, ignored);
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  const std::vector<ServerPlace>& places() const { return places_; }
  // Where thread `thread` lists its acknowledged pushes; empty: nowhere.
  std::string AuditOf(int thread) const {
    return audit_.empty() ? "" : (audit_ / fmt::format("acknowledged-{}", thread)).string();
  }

 private:
  // Anew: a run continues from its checkpoint, where parameters and workers are of the same moment.
  void Start(int count, const RunContext& context) {
    if (context.folder == nullptr) scratch_.emplace();
    folder_ = (scratch_ ? scratch_->path() : context.folder->path()) / "servers";
    std::error_code error;
    fs::remove_all(folder_, error);
    if (!error) fs::create_directory(folder_, error);
    if (error) Fail("cannot make the folder {} anew: {}", folder_.string(), error.message());
    try {
      local_ = std::make_unique<LocalServers>(context.options.server_program, count, folder_,
                                              context.options.audit, context.options.say);
    } catch (const Error&) {
      fs::remove_all(folder_, error);
      throw;
    }
  }

  std::optional<ScratchFolder> scratch_;  // of a run without a folder
  std::unique_ptr<LocalServers> local_;
  fs::path folder_;  // of local_
  std::vector<ServerPlace> places_;
  fs::path audit_;  // a folder; empty: none
};

class ServerTopology final : public Topology {
 public:
  explicit ServerTopology(const RunContext& context)
      : Topology(context.settings.run.workers),
        context_(context),
        servers_(
            context,
            [this, stop = context.options.stop] { return failed() || (stop != nullptr && stop->load()); }),
        terms_(TermsOf(context, static_cast<int>(servers_.places().size()))) {
    if (NormBlocks(terms_.params) < servers_.places().size()) {
      Fail("{} servers are too many for {} parameters: a server holds at least {}", servers_.places().size(),
           terms_.params, kNormBlock);
    }
    for (int worker = 0; worker < context.settings.run.workers; ++worker) ids_.push_back(DrawId());
    heartbeat_ = std::make_unique<Heartbeat>(servers_.places(), ids_, terms_.lease_s);
  }

  std::unique_ptr<WorkerLinks> Connect(int thread) override;

  const RunContext& context() const { return context_; }
  std::string AuditOf(int thread) const { return servers_.AuditOf(thread); }

  ServerSession MakeSession(int thread) const {
    std::vector<ServerPlace> places = servers_.places();
    if (thread == 0) {
      for (ServerPlace& place : places) place.say = context_.options.say;
    }
    return {std::move(places), terms_, ids_[thread], thread == 0};
  }

  // Threads join in their order, so that ranks follow it. Throws Error.
  ServerSession::Entry Join(ServerSession& session, int thread) {
    for (int now = joined_.load(); now < thread && !failed(); now = joined_.load()) joined_.wait(now);
    if (failed()) throw ServerLost("another worker of this process has failed");
    ServerSession::Entry entry = session.Join();
    session.MeasureLinks();
    if (thread == 0) first_rank_.store(session.rank());
    joined_.fetch_add(1);
    joined_.notify_all();
    return entry;
  }
  // Of the first thread, the one that may lead.
  int first_rank() const { return first_rank_.load(); }
  void FirstLeaves() { first_has_left_.store(true); }
  bool first_has_left() const { return first_has_left_.load(); }

 private:
  // A change wakes those that wait for their turn; failed() tells them why.
  void EndWaits() override {
    joined_.fetch_add(1);
    joined_.notify_all();
  }

  const RunContext context_;
  Servers servers_;
  RunTerms terms_;
  std::vector<std::uint64_t> ids_;        // of the workers of this process
  std::unique_ptr<Heartbeat> heartbeat_;  // for all of them
  std::atomic<int> first_rank_{-1};
  std::atomic<bool> first_has_left_{false};
  std::atomic<int> joined_{0};
};

// What links to servers have in common, whatever the pace. `Base`: WorkerLinks or InStepLinks.
template <class Base>
class ServerLinks : public Base {
 public:
  ServerLinks(ServerTopology& topology, ThreadGroup& group, int thread)
      : Base(group, thread), topology_(topology), session_(topology.MakeSession(thread)) {
    session_.Offer(topology.context().initial);
  }

  std::vector<ProcessLink> links() override { return session_.links(); }
  int rank() const override { return session_.rank(); }
  int leader() const override { return session_.leader(); }
  bool led_elsewhere() const override {
    return session_.leader() >= 0 && session_.leader() != topology_.first_rank();
  }

  WorkerLinks::Entry Join(std::int64_t steps) override {
    if (!session_.joined()) session_.OfferSteps(steps);
    ServerSession::Entry entry = topology_.Join(session_, this->thread());
    return {.boundary = std::move(entry.state),
            .others_are_there = entry.at_boundary,
            .steps = session_.steps(),
            .ended = session_.finished() ? "server " + session_.link(0).address() : ""};
  }

 protected:
  ServerTopology& topology_;
  ServerSession session_;
};

class InStepServerLinks final : public ServerLinks<InStepLinks> {
 public:
  InStepServerLinks(ServerTopology& topology, ThreadGroup& group, int thread)
      : ServerLinks(topology, group, thread), comm_(session_), store_(MakeSyncServerStore(session_, comm_)) {}
  ~InStepServerLinks() override { GoAway(); }

  Communicator& everyone() override { return comm_; }
  GradientGroup gradient_group() override { return {comm_}; }
  ParameterStore& store() override { return *store_; }

  std::size_t most_state() const override {
    return MostGathered(topology_.context().settings.run.total_workers());
  }
  bool open() const override { return true; }
  Boundary Announce(const Boundary& own, RunProgress& progress) override {
    return DecodeBoundary(comm_.Boundary(EncodeBoundary(own, progress), own.common.has_value()), progress);
  }
  void AddSteps(std::int64_t steps) override { session_.AddSteps(steps); }
  bool ended() const override { return session_.finished() || (leader() < 0 && topology_.first_has_left()); }
  // Those that were left behind learn that it is over, whoever is left to say so.
  void Leave(bool interrupted) override {
    if (!interrupted) session_.Finish();
    GoAway();
  }

 private:
  void GoAway() {
    session_.Leave();
    if (thread() == 0) topology_.FirstLeaves();
  }

  ServerCommunicator comm_;
  std::unique_ptr<ServerStore> store_;
};

class ElasticServerLinks final : public ServerLinks<WorkerLinks> {
 public:
  ElasticServerLinks(ServerTopology& topology, ThreadGroup& group, int thread)
      : ServerLinks(topology, group, thread),
        store_(MakeAsyncServerStore(session_, topology.context().settings.run.server.overlap,
                                    topology.AuditOf(thread))) {}
  ~ElasticServerLinks() override { session_.Leave(); }

  Communicator& everyone() override { return threads(); }
  GradientGroup gradient_group() override { return {alone_.comm(), rank()}; }
  ParameterStore& store() override { return *store_; }
  std::unique_ptr<WorkerLoop> MakeLoop(Worker& worker) override {
    return MakeElasticLoop(worker, session_, *store_);
  }

 private:
  GroupOfOne alone_;
  std::unique_ptr<ServerStore> store_;
};

std::unique_ptr<WorkerLinks> ServerTopology::Connect(int thread) {
  if (context_.settings.run.in_step()) return std::make_unique<InStepServerLinks>(*this, threads_, thread);
  return std::make_unique<ElasticServerLinks>(*this, threads_, thread);
}

}  // namespace

std::unique_ptr<Topology> MakeServerTopology(const RunContext& context) {
  return std::make_unique<ServerTopology>(context);
}

}  // namespace trireme
