#include "trireme/train/links.h"

#include <limits>
#include <random>

#include "trireme/optim/clip.h"
#include "trireme/train/run_state.h"

namespace trireme {
namespace {

RunTerms TermsOf(const RunSettings& settings, const Network& network, const std::string& version,
                 int servers) {
  const RunConfig& run = settings.run;
  return {.version = version,
          .env = run.env,
          .algo = run.algo,
          .network = DescribeNetwork(network.spec()),
          .seed = run.seed,
          .params = network.param_count(),
          .work_shards = run.shards,
          .servers = servers,
          .pace = run.server.pace,
          .workers = run.asynchronous() ? 1 : run.total_workers(),
          .backup_workers = run.server.backup_workers,
          .staleness_bound = run.server.staleness_bound,
          .staleness_scaled = run.server.staleness_scaled,
          .lease_s = run.server.lease_s,
          .round_s = run.server.round_s,
          .optimizer = settings.algorithm->optimizer()};
}

std::uint64_t DrawId() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) | 1;  // 0 stands for nobody
}

}  // namespace

ServerGroup::ServerGroup(const RunSettings& settings, const Network& network, const TrainOptions& options,
                         const RunFolder& folder, const std::function<bool()>& stopped) {
  const ServerConfig& config = settings.run.server;
  Transport& transport = LoadGrpc();
  say = options.say;
  if (const int count = config.local(); count > 0) {
    // A run continues from its checkpoint, where parameters and workers are of the same moment.
    local_folder = folder.path() / "servers";
    std::error_code error;
    std::filesystem::remove_all(local_folder, error);
    if (!error) std::filesystem::create_directory(local_folder, error);
    if (error) Fail("cannot make the folder {} anew: {}", local_folder.string(), error.message());
    try {
      local = std::make_unique<LocalServers>(count, local_folder, options.audit, options.say);
    } catch (const Error&) {
      std::filesystem::remove_all(local_folder, error);
      throw;
    }
  }
  for (const std::string& address : local ? local->addresses() : config.List()) {
    places.push_back({&transport, address, local ? Security() : options.security, config.wait_s, stopped});
  }
  terms = TermsOf(settings, network, options.version, static_cast<int>(places.size()));
  if (NormBlocks(terms.params) < places.size()) {
    Fail("{} servers are too many for {} parameters: a server holds at least {}", places.size(), terms.params,
         kNormBlock);
  }
  for (int worker = 0; worker < settings.run.workers; ++worker) ids.push_back(DrawId());
  heartbeat = std::make_unique<Heartbeat>(places, ids, terms.lease_s);
  if (options.audit) audit = folder.path();
}

// The checkpoint has what they had; their logs have room for much more.
ServerGroup::~ServerGroup() {
  if (!local) return;
  heartbeat.reset();
  local.reset();
  std::error_code ignored;
  if (audit.empty()) std::filesystem::remove_all(local_folder, ignored);
}

std::string ServerGroup::AuditOf(int thread) const {
  return audit.empty() ? "" : (audit / fmt::format("acknowledged-{}", thread)).string();
}

WorkerGroup::WorkerGroup(const RunSettings& settings, const Network& network, const TrainOptions& options,
                         const RunFolder* folder, std::span<const float> initial)
    : threads(settings.run.workers), processes(options.processes) {
  const RunConfig& run = settings.run;
  if (run.store == "shared") {
    shared.emplace(settings.algorithm->optimizer(), run.share_moments, initial);
    if (!run.schedule.empty()) schedule.emplace(run.schedule, run.workers);
  } else if (run.on_servers()) {
    servers.emplace(settings, network, options, *folder, [this, stop = options.stop] {
      return failed.load() || (stop != nullptr && stop->load());
    });
  }
}

void WorkerGroup::Abort() {
  failed.store(true);
  meeting.store(true);
  if (schedule) schedule->Abort();
  if (servers) {
    servers->joined.store(std::numeric_limits<int>::max());
    servers->joined.notify_all();
  }
  ThreadCommunicator(threads, 0).Abort();
  if (processes != nullptr) processes->Abort();
}

WorkerLinks::WorkerLinks(const RunSettings& settings, WorkerGroup& group, int thread,
                         std::span<const float> initial)
    : group_(group), threads_(group.threads, thread), comm_(&threads_) {
  const RunConfig& run = settings.run;
  if (group.processes != nullptr) {
    hybrid_.emplace(threads_, group.processes, group.processes->rank(), group.processes->size());
    comm_ = &*hybrid_;
  }
  if (group.shared) {
    store_ = MakeSharedStore(*group.shared, thread, group.schedule ? &*group.schedule : nullptr);
  } else if (!group.servers) {
    store_ = MakeAllReduceStore(*comm_, settings.algorithm->optimizer(), initial);
  } else {
    std::vector<ServerPlace> places = group.servers->places;
    if (thread == 0) {
      for (ServerPlace& place : places) place.say = group.servers->say;
    }
    session_ = std::make_unique<ServerSession>(std::move(places), group.servers->terms,
                                               group.servers->ids[thread], thread == 0);
    session_->Offer(initial);
    std::unique_ptr<ServerStore> store;
    if (run.asynchronous()) {
      store = MakeAsyncServerStore(*session_, run.server.overlap, group.servers->AuditOf(thread));
    } else {
      through_server_ = std::make_unique<ServerCommunicator>(*session_);
      comm_ = through_server_.get();
      store = MakeSyncServerStore(*session_, *comm_);
    }
    server_store_ = store.get();
    store_ = std::move(store);
  }
}

WorkerLinks::~WorkerLinks() {
  if (session_) session_->Leave();
}

ServerSession::Entry WorkerLinks::Join() {
  if (!session_) return {};
  std::atomic<int>& joined = group_.servers->joined;
  for (int now = joined.load(); now < threads_.rank(); now = joined.load()) joined.wait(now);
  if (joined.load() == std::numeric_limits<int>::max()) Fail("another worker of this process has failed");
  ServerSession::Entry entry = session_->Join();
  session_->MeasureLinks();
  if (threads_.rank() == 0) group_.servers->first_rank.store(session_->rank());
  joined.fetch_add(1);
  joined.notify_all();
  return entry;
}

}  // namespace trireme
