#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/plan/probe.h"
#include "trireme/plan/timing_store.h"
#include "trireme/server/client/local_servers.h"
#include "trireme/server/client/server_communicator.h"
#include "trireme/server/client/server_store.h"
#include "trireme/train/speedup.h"

namespace trireme {
namespace {

constexpr int kWarmUp = 50;  // trips that do not count
constexpr int kFewest = 100, kMost = 5000;
constexpr std::size_t kRoom = 64 * 1024;  // floats that a worker works with
constexpr double kUsualTrip = 200e-6;     // seconds, to choose how many

// The mean, because rates are made of means, without the slowest fiftieth, which others have disturbed.
double Usual(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  seconds.resize(seconds.size() - seconds.size() / 50);
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

// One experiment: so many workers, each with so many trips of its own.
struct Experiment {
  const TripQuestion& question;
  int workers = 1;
  bool gradients = true;  // each worker on its own; else the smallest messages of workers in step
  bool overlap = false;   // thinks while the answer comes
  int trips = kFewest;
};
// Per trip.
struct Costs {
  double wall_s = 0;    // the usual of the first worker's, from the first to the last instruction
  double round_s = 0;   // the usual with thinking
  double worker_s = 0;  // processor time
  double server_s = 0;
  double sum() const { return worker_s + server_s; }
};

class TripWorker {
 public:
  TripWorker(const Experiment& experiment, const std::string& address, int index)
      : experiment_(experiment),
        session_({{.transport = &LoadGrpc(), .address = address, .security = {}}}, Terms(experiment),
                 static_cast<std::uint64_t>(index) + 1),
        comm_(session_),
        store_(MakeAsyncServerStore(session_, experiment.overlap)),
        gradient_(experiment.question.floats) {
    session_.Offer(std::vector<float>(experiment.question.floats, 0.5f));
  }
  ~TripWorker() { session_.Leave(); }

  void Run(int trips, std::vector<double>* walls, std::vector<double>* rounds) {
    for (int i = 0; i < trips; ++i) {
      const double round_s = MonotonicSeconds();
      if (experiment_.overlap) store_->Pull();
      Think();
      const double begun_s = MonotonicSeconds();
      if (experiment_.gradients) {
        store_->Push(gradient_, {.learning_rate = 1e-4f, .max_grad_norm = 0.5});
      } else {
        comm_.Barrier();
      }
      if (walls == nullptr) continue;
      walls->push_back(MonotonicSeconds() - begun_s);
      rounds->push_back(MonotonicSeconds() - round_s);
    }
  }
  double thought_s() const { return thought_s_; }
  ServerSession& session() { return session_; }

 private:
  static RunTerms Terms(const Experiment& experiment) {
    return {.version = "",
            .env = "probe",
            .algo = "probe",
            .network = "",
            .params = experiment.question.floats,
            .servers = 1,
            .pace = experiment.gradients ? Pace::kAsync : Pace::kSync,
            .workers = 1,
            .lease_s = 60,
            .optimizer = experiment.question.optimizer};
  }
  void Think() {
    const double begun_s = ThreadSeconds();
    std::ranges::fill(gradient_, 1e-3f);
    while (ThreadSeconds() - begun_s < experiment_.question.think_s) {
      // Training leaves little in the caches of what a trip needs.
      for (float& value : room_) value += 1;
    }
    thought_s_ += ThreadSeconds() - begun_s;
  }

  const Experiment& experiment_;
  ServerSession session_;
  ServerCommunicator comm_;
  std::unique_ptr<ServerStore> store_;
  std::vector<float> gradient_;
  std::vector<float> room_ = std::vector<float>(kRoom);
  double thought_s_ = 0;
};

// All but the first wait for their turn to join, so that they have different ranks; then they go on together.
Costs RunWith(const Experiment& experiment, const LocalServers& servers) {
  std::vector<std::unique_ptr<TripWorker>> workers;
  for (int i = 0; i < experiment.workers; ++i) {
    workers.push_back(std::make_unique<TripWorker>(experiment, servers.addresses()[0], i));
    workers.back()->session().Join();
  }
  const auto together = [&](int trips, std::vector<double>* walls, std::vector<double>* rounds) {
    std::vector<std::exception_ptr> errors(workers.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          workers[i]->Run(trips, i == 0 ? walls : nullptr, rounds);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  };
  const auto thought_s = [&] {
    double sum = 0;
    for (const auto& worker : workers) sum += worker->thought_s();
    return sum;
  };
  together(kWarmUp, nullptr, nullptr);
  std::vector<double> walls, rounds;
  const double cpu_s = CpuSeconds(), thinking_s = thought_s(), server_s = servers.ProcessorSeconds();
  together(experiment.trips, &walls, &rounds);
  const double spent_s = CpuSeconds() - cpu_s - (thought_s() - thinking_s);
  const int trips = experiment.trips * experiment.workers;
  return {.wall_s = Usual(std::move(walls)),
          .round_s = Usual(std::move(rounds)),
          .worker_s = std::max(0.0, spent_s) / trips,
          .server_s = (servers.ProcessorSeconds() - server_s) / trips};
}

// With a server of its own.
Costs Measure(Experiment experiment, double seconds) {
  const double each_s = experiment.question.think_s + kUsualTrip;
  experiment.trips = static_cast<int>(std::clamp<double>(seconds / each_s, kFewest, kMost));
  const ScratchFolder folder;
  const LocalServers servers("/proc/self/exe", 1, folder.path(), /*audit=*/false, [](const std::string&) {});
  return RunWith(experiment, servers);
}

double MeasurePoll() {
  const ScratchFolder folder;
  const LocalServers servers("/proc/self/exe", 1, folder.path(), /*audit=*/false, [](const std::string&) {});
  const auto stream = LoadGrpc().Connect(servers.addresses()[0], {});
  stream->Receive(Clock::now() + std::chrono::milliseconds(200));  // opens; nothing comes
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    const double begun_s = MonotonicSeconds();
    stream->Receive(Clock::now());
    seconds.push_back(MonotonicSeconds() - begun_s);
  }
  return Median(std::move(seconds));
}

// From a trip of `floats` and one of none.
TripCost Fit(double small_s, double large_s, double floats) {
  const double fixed_s = std::min(small_s, large_s);
  return {.fixed_s = fixed_s, .s_per_float = (large_s - fixed_s) / floats};
}

}  // namespace

ServerTrips ProbeServer(const TripQuestion& question) {
  const auto floats = static_cast<double>(question.floats);
  const double apply_s = question.apply_s_per_float * floats;
  Costs large = Measure({.question = question}, question.seconds / 2);
  Costs small = Measure({.question = question, .gradients = false}, question.seconds / 4);
  // Processor time that a trip does not wait for, such as falling asleep after the answer, is no part of it.
  if (const double excess = large.sum() / large.wall_s; excess > 1) {
    for (double* const cost : {&large.worker_s, &large.server_s, &small.worker_s, &small.server_s}) {
      *cost /= excess;
    }
  }
  ServerTrips trips;
  const Costs overlapped = Measure({.question = question, .overlap = true}, question.seconds / 4);
  if (large.worker_s > 0 && overlapped.worker_s > 0) trips.overlapped = overlapped.worker_s / large.worker_s;
  trips.worker = Fit(small.worker_s, large.worker_s, floats);
  trips.server = Fit(small.server_s, std::max(0.0, large.server_s - apply_s), floats);
  trips.latency_s = std::max(0.0, large.wall_s - large.sum());  // scaling leaves a rounding error
  trips.poll_s = MeasurePoll();
  trips.crowd = UsableProcessors();
  trips.crowded_round_s =
      trips.crowd == 1
          ? large.round_s
          : Measure({.question = question, .workers = trips.crowd}, question.seconds / 4).round_s;
  return trips;
}

}  // namespace trireme
