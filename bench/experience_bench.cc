// Trajectories from an actor's process to a learner's: through shared memory, and by gRPC over a Unix socket, beside copying them once on
// one core, which is what each of the two must do at least.
//
//   experience_bench [seconds per figure, default 2]
//
// As actors do it: at most two are on their way that have not been answered, and an answer is short. The learner's end reads every byte.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "timing.h"
#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/experience/actor_desk.h"
#include "trireme/experience/trajectory_message.h"
#include "trireme/rpc/transport.h"

namespace trireme {
namespace {

// What answers: a learner that takes all.
class Learner final : public ServerTransport::Handler {
 public:
  explicit Learner(ServerTransport& server) : server_(server) {}
  void OnOpen(PeerId peer, const std::string&) override { server_.Allow(peer, SIZE_MAX); }
  void OnMessage(PeerId peer, Incoming& message) override {
    if (taken_.size() < message.size()) taken_ = AlignedBuffer<std::byte>(message.size());
    message.Read(taken_.span().first(message.size()));
    server_.Send(peer, EncodePolicy(1, {}));
  }
  void OnClose(PeerId) override {}
  Deadline OnTime(Deadline now) override { return now + std::chrono::hours(1); }

 private:
  ServerTransport& server_;
  AlignedBuffer<std::byte> taken_;
};

void Serve(const std::string& address) {
  const std::unique_ptr<ServerTransport> server = TransportFor(address).Listen(address, {});
  Learner learner(*server);
  server->Run(learner, [] { return false; });
}

// A learner in another process, as long as this object lives, and an actor's stream to it.
class Side {
 public:
  explicit Side(const std::string& address) : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl("/proc/self/exe", "experience_bench", "serve", address.c_str(), nullptr);
      _exit(127);
    }
    if (clock_getcpuclockid(pid_, &clock_) != 0) Fail("no clock of another process");
    stream_ = TransportFor(address).Connect(address, {});
  }
  ~Side() {
    stream_.reset();
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void Transfer(const Outgoing& message, int count) {
    const Deadline deadline = Clock::now() + std::chrono::seconds(60);
    for (int sent = 0, answered = 0; answered < count;) {
      bool ok = true;
      if (sent < count && sent - answered < static_cast<int>(kWindow)) {
        ok = stream_->Send(message, deadline);
        ++sent;
      } else {
        ok = stream_->Receive(deadline) != nullptr;
        ++answered;
      }
      if (!ok) Fail("the stream broke: {}", stream_->why());
    }
  }
  // Of both processes, in seconds.
  double ProcessorTime() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return CpuSeconds() + static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  pid_t pid_;
  clockid_t clock_{};
  std::unique_ptr<Stream> stream_;
};

struct Cost {
  std::vector<double> seconds, processor;  // of a message, by round
};

Cost Measure(double seconds, int count, const auto& work, const auto& processor_time) {
  Cost cost;
  const double begun = Now(), before = processor_time();
  int rounds = 0;
  do {
    const double start = Now();
    work(count);
    cost.seconds.push_back((Now() - start) / count);
    ++rounds;
  } while (Now() < begun + seconds);
  cost.processor.push_back((processor_time() - before) / (rounds * count));
  return cost;
}

void Compare(const char* name, const TrajectoryShape& shape, double seconds,
             const std::vector<Side*>& sides) {
  Trajectory trajectory(RowLayout(shape.env), shape.env.action.size(), shape.steps, shape.envs);
  const Outgoing message = EncodeTrajectory(trajectory, 1);
  AlignedBuffer<std::byte> from(message->size()), to(message->size());
  const int count = message->size() > 100'000 ? 50 : 2000;
  const auto copy = [&](int times) {
    for (int i = 0; i < times; ++i) {
      std::memcpy(to.data(), from.data(), to.size());
      asm volatile("" : : "r"(to.data()) : "memory");
    }
  };
  fmt::print("{}: {} steps of {} environments, {} bytes\n", name, shape.steps, shape.envs, message->size());
  const char* const names[] = {"shared memory", "gRPC, Unix socket", "memcpy in a cache"};
  std::vector<Cost> costs(3);
  constexpr int kTurns = 5;
  for (Side* const side : sides) side->Transfer(message, 20);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t s = 0; s < 3; ++s) {
      const Cost cost = s < 2 ? Measure(
                                    seconds / kTurns, count, [&](int n) { sides[s]->Transfer(message, n); },
                                    [&] { return sides[s]->ProcessorTime(); })
                              : Measure(seconds / kTurns, count, copy, CpuSeconds);
      costs[s].seconds.insert(costs[s].seconds.end(), cost.seconds.begin(), cost.seconds.end());
      costs[s].processor.push_back(cost.processor[0]);
    }
  }
  const double limit = Median(costs[2].seconds);
  for (std::size_t s = 0; s < 3; ++s) {
    const double each = Median(costs[s].seconds);
    fmt::print(
        "  {:<18} {:>9.0f} messages/s {:>9.0f} MB/s {:>7.1f} % of memcpy {:>9.1f} us of processors each\n",
        names[s], 1 / each, 1e-6 * static_cast<double>(message->size()) / each, 100 * limit / each,
        1e6 * Median(costs[s].processor));
  }
}

TrajectoryShape Shape(std::vector<int> obs, int steps, int envs) {
  EnvSpec env;
  env.name = "Bench-v0";
  env.obs.shape = std::move(obs);
  env.action = ActionSpace::Discrete(4);
  return {env, steps, envs};
}

void Run(double seconds) {
  const ScratchFolder scratch;
  Side shared("shm:" + (scratch.path() / "shared").string()),
      grpc("unix:" + (scratch.path() / "grpc").string());
  const std::vector<Side*> sides = {&shared, &grpc};
  Compare("as of CartPole", Shape({4}, 32, 8), seconds, sides);
  Compare("as of robots", Shape({105}, 64, 8), seconds, sides);
  Compare("of pictures", Shape({84, 84}, 20, 4), seconds, sides);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 0);
  try {
    if (argc == 3 && std::string(argv[1]) == "serve") Serve(argv[2]);
    Run(argc > 1 ? std::atof(argv[1]) : 2);
  } catch (const Error& error) {
    fmt::print(stderr, "experience_bench: {}\n", error.what());
    return 1;
  }
}
