// A replay server beside what it must do at least, and beside a memory of one's own: transitions per second that an actor inserts, and that
// a learner draws in batches of 256 and gives new errors.
//
//   replay_server_bench [seconds per figure, default 2] [folder for what the server remembers, default none]
//
// "bare": the same messages over the same transport, with answers as long and as many on their way, to a process that reads them and
// answers. "in process": Insert, or Sample and Update, of the ReplayPart that the server has, without messages. All take
// turns; a ratio is the median of those of the turns.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "timing.h"
#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/experience/message_parts.h"
#include "trireme/experience/remote_actor.h"
#include "trireme/experience/remote_replay.h"
#include "trireme/experience/replay_desk.h"
#include "trireme/rpc/transport.h"

namespace trireme {
namespace {

constexpr std::uint64_t kBatch = 256;
constexpr int kSteps = 32, kEnvs = 8, kTurns = 21, kParams = 100;

// ---- The other process ----

// Answers each message with so many bytes as the first one says, which is not answered.
class Bare final : public ServerTransport::Handler {
 public:
  explicit Bare(ServerTransport& server) : server_(server) {}
  void OnOpen(PeerId peer, const std::string&) override { server_.Allow(peer, SIZE_MAX); }
  void OnMessage(PeerId peer, Incoming& message) override {
    if (message.size() == sizeof(std::uint64_t)) {
      answer_ = std::make_shared<AlignedBuffer<std::byte>>(ReadOne<std::uint64_t>(message));
      return;
    }
    if (taken_.size() < message.size()) taken_ = AlignedBuffer<std::byte>(message.size());
    ReadTo(message, taken_.span().first(message.size()));
    server_.Send(peer, answer_);
  }
  void OnClose(PeerId) override {}
  Deadline OnTime(Deadline now) override { return now + std::chrono::hours(1); }

 private:
  ServerTransport& server_;
  Outgoing answer_;
  AlignedBuffer<std::byte> taken_;
};

void Serve(const std::string& kind, const std::string& address, const std::string& folder) {
  const std::unique_ptr<ServerTransport> server = TransportFor(address).Listen(address, {});
  const auto never = [] { return false; };
  if (kind == "bare") {
    Bare bare(*server);
    server->Run(bare, never);
  } else {
    ReplayDesk desk(*server, {.version = "bench", .folder = folder});
    server->Run(desk, never);
  }
}

class Child {
 public:
  Child(const char* kind, const std::string& address, const std::string& folder) : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl("/proc/self/exe", "replay_server_bench", "serve", kind, address.c_str(), folder.c_str(), nullptr);
      _exit(127);
    }
    if (clock_getcpuclockid(pid_, &clock_) != 0) Fail("no clock of another process");
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  double ProcessorTime() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  pid_t pid_;
  clockid_t clock_{};
};

// ---- What is compared ----

struct Case {
  const char* name;
  TrajectoryShape shape;
  std::size_t capacity;
};

ReplayRun RunOf(const Case& what) {
  return {.id = "run",
          .looks = "bench",
          .shape = what.shape,
          .rules = {.capacity = what.capacity, .n_step = 3},
          .rate = {.draws_per_insert = 1, .least = 1, .slack = 1e15},
          .part = kBatch,
          .settings = "",
          .params = kParams,
          .seed = 1};
}

Trajectory Collected(const TrajectoryShape& shape) {
  Trajectory t(RowLayout(shape.env), shape.env.action.size(), shape.steps, shape.envs);
  RandomStream random(1, Purpose::kTest, 0, 0);
  for (float& x : t.obs) x = static_cast<float>(random.NextNormal());
  for (float& x : t.extra) x = static_cast<float>(random.NextNormal());
  for (float& x : t.rewards) x = 1;
  t.policy = 1;
  return t;
}

// One side of a comparison: what is done again and again, and the processor time it takes, all processes together.
struct Side {
  std::function<void()> once;
  std::function<double()> processor_time;
  std::vector<double> seconds = {}, processor = {};  // of a time, by turn

  void Turn(double lasts_s) {
    const double begun = Now(), before = processor_time();
    int times = 0;
    do {
      once();
      ++times;
    } while (Now() < begun + lasts_s);
    seconds.push_back((Now() - begun) / times);
    processor.push_back((processor_time() - before) / times);
  }
};

// The same bytes there and back, so many on their way.
class BareStream {
 public:
  BareStream(const std::string& address, std::size_t there, std::size_t back, int window)
      : child_("bare", address, ""),
        stream_(TransportFor(address).Connect(address, {})),
        message_(std::make_shared<AlignedBuffer<std::byte>>(there)),
        taken_(back),
        window_(window) {
    MessageParts size(sizeof(std::uint64_t));
    size.PutOne<std::uint64_t>(back);
    Check(stream_->Send(size.Done(), Soon()));
  }
  Side AsSide() {
    return {[this] { Once(); }, [this] { return CpuSeconds() + child_.ProcessorTime(); }};
  }

 private:
  static Deadline Soon() { return Clock::now() + std::chrono::seconds(60); }
  void Check(bool ok) const {
    if (!ok) Fail("the stream broke: {}", stream_->why());
  }
  void Once() {
    for (; on_its_way_ >= window_; --on_its_way_) {
      Incoming* const answer = stream_->Receive(Soon());
      Check(answer != nullptr);
      ReadTo(*answer, taken_.span());
    }
    Check(stream_->Send(message_, Soon()));
    ++on_its_way_;
  }

  Child child_;
  std::unique_ptr<Stream> stream_;
  Outgoing message_;
  AlignedBuffer<std::byte> taken_;
  int window_, on_its_way_ = 0;
};

// A replay server, a learner who draws from it, and an actor who sends to it.
class Server {
 public:
  Server(const Case& what, const std::string& address, const std::string& folder)
      : child_("desk", address, folder),
        replay_({.servers = {address}, .version = "bench"}, RunOf(what)),
        actor_({.transport = &TransportFor(address), .address = address, .version = "bench"}),
        collected_(Collected(what.shape)),
        errors_(kBatch, 0.5f) {
    replay_.Begin(std::vector<float>(kParams));
    if (!actor_.Join()) Fail("no server");
    actor_.Ready("bench", kParams);
  }
  void Insert() {
    const auto policy = actor_.Newest();
    if (policy == nullptr) Fail("the actor's stream broke");
    collected_.policy = policy->version;
    if (!actor_.Send(collected_)) Fail("the actor's stream broke");
  }
  void Draw() {
    replay_.Draw(0, 0, 0.4);
    replay_.Correct(0, errors_);
  }
  Side Inserts() {
    return {[this] { Insert(); }, [this] { return ProcessorTime(); }};
  }
  Side Draws() {
    return {[this] { Draw(); }, [this] { return ProcessorTime(); }};
  }

 private:
  double ProcessorTime() const { return CpuSeconds() + child_.ProcessorTime(); }

  Child child_;
  RemoteReplay replay_;
  RemoteActorEnd actor_;
  Trajectory collected_;
  std::vector<float> errors_;
};

// ---- Figures ----

// Of the turns, sides[a] over sides[b].
double Ratio(const std::vector<Side>& sides, std::size_t a, std::size_t b) {
  std::vector<double> ratios;
  for (int turn = 0; turn < kTurns; ++turn) ratios.push_back(sides[a].seconds[turn] / sides[b].seconds[turn]);
  return Median(ratios);
}

// sides: a memory of one's own, then for each transport a bare stream and a server.
void Compare(const char* what, const std::vector<const char*>& transports, double seconds,
             std::vector<Side> sides) {
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Side& side : sides) side.Turn(seconds / kTurns);
  }
  const auto million = [&](std::size_t i) { return 1e-6 * kBatch / Median(sides[i].seconds); };
  const auto cpu = [&](std::size_t i) { return 1e6 * Median(sides[i].processor); };
  fmt::print("  {:<8} in process {:>7.2f} million/s, {:.1f} us of processors for {}\n", what, million(0),
             cpu(0), kBatch);
  for (std::size_t t = 0; t < transports.size(); ++t) {
    const std::size_t bare = 1 + 2 * t, server = bare + 1;
    fmt::print(
        "    {:<14} server {:>7.2f}, bare {:>7.2f} million/s: {:>4.0f} % of bare, in process is {:.1f} times "
        "as fast; "
        "us of processors {:.1f}, bare {:.1f}\n",
        transports[t], million(server), million(bare), 100 * Ratio(sides, bare, server),
        Ratio(sides, server, 0), cpu(server), cpu(bare));
  }
}

void Run(const Case& what, double seconds, const std::string& folder) {
  const ScratchFolder scratch;
  const Trajectory collected = Collected(what.shape);
  const RowLayout layout(what.shape.env);
  const std::size_t record = ReplayBuffer::RecordSize(layout, what.shape.env.action.size());
  const std::size_t trajectory = EncodeTrajectory(collected, 1)->size(), policy = EncodePolicy(1, {})->size();
  const std::vector<std::uint64_t> numbers(kBatch);
  const std::vector<float> errors(kBatch);
  const std::size_t turn = EncodeTurn({.corrected = kBatch}, numbers, errors)->size();
  const std::size_t answer = AnswerBytes(1, kBatch, record);
  fmt::print(
      "{}: trajectories of {} steps of {} environments, {} bytes; draws of {} bytes; {} transitions "
      "remembered{}\n",
      what.name, kSteps, kEnvs, trajectory, answer, what.capacity, folder.empty() ? "" : ", in a folder");

  ReplayPart part(RunOf(what).rules, what.shape.env, kEnvs);
  ReplayDraw draw(kBatch, layout, what.shape.env.action.size());
  std::uint64_t drawn = 0;
  const std::function<void()> insert = [&] { part.Insert(collected); };
  const std::function<void()> sample = [&] {
    RandomStream random(1, Purpose::kReplay, 0, ++drawn);
    part.Sample(random, 0.4, draw);
    part.Update(draw.numbers, errors);
  };
  std::vector<Side> inserts{{insert, CpuSeconds}}, draws{{sample, CpuSeconds}};
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::unique_ptr<BareStream>> bare;
  const std::vector<const char*> transports = {"gRPC", "shared memory"};
  for (const std::string prefix : {"unix:", "shm:"}) {
    const auto at = [&](const char* name) {
      return prefix + (scratch.path() / (prefix.substr(0, 1) + name)).string();
    };
    bare.push_back(std::make_unique<BareStream>(at("i"), trajectory, policy, kWindow));
    inserts.push_back(bare.back()->AsSide());
    bare.push_back(std::make_unique<BareStream>(at("d"), turn, answer, RemoteReplay::Options().ahead));
    draws.push_back(bare.back()->AsSide());
    servers.push_back(
        std::make_unique<Server>(what, at("s"), folder.empty() ? "" : folder + "/" + prefix.substr(0, 1)));
    inserts.push_back(servers.back()->Inserts());
    draws.push_back(servers.back()->Draws());
  }
  // Memories are full from the beginning.
  const auto full = static_cast<int>(what.capacity / (kSteps * kEnvs)) + 1;
  for (int i = 0; i < full; ++i) {
    insert();
    for (const auto& server : servers) server->Insert();
  }
  Compare("inserts", transports, seconds, std::move(inserts));
  Compare("draws", transports, seconds, std::move(draws));
}

Case CaseOf(const char* name, ObsSpec obs, std::size_t capacity) {
  EnvSpec env;
  env.name = "Bench-v0";
  env.obs = std::move(obs);
  env.action = ActionSpace::Discrete(4);
  return {name, {env, kSteps, kEnvs}, capacity};
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 0);
  try {
    if (argc == 5 && std::string(argv[1]) == "serve") Serve(argv[2], argv[3], argv[4]);
    const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    const std::string folder = argc > 2 ? argv[2] : "";
    const std::string only = argc > 3 ? argv[3] : "";
    const auto run = [&](const Case& what, const char* where) {
      Run(what, seconds, folder.empty() ? "" : folder + "/" + where);
    };
    if (only != "pictures") run(CaseOf("as of CartPole", {.shape = {4}}, 1'000'000), "cart_pole");
    if (only != "cart_pole")
      run(CaseOf("of pictures", {.shape = {84, 84, 4}, .type = ObsType::kUint8}, 8192), "pictures");
  } catch (const Error& error) {
    fmt::print(stderr, "replay_server_bench: {}\n", error.what());
    return 1;
  }
}
