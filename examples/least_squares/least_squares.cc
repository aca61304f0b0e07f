#include "least_squares/least_squares.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>

#include "least_squares/map_reduce.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/comm/run_ranks.h"
#include "trireme/store/shared_store.h"

namespace trireme {
namespace {

// sum += g(x_j, y_j, w) = (x_j^T w - y_j) x_j
void AddGradient(const LeastSquares& problem, std::size_t j, std::span<const double> w,
                 std::span<double> sum) {
  const double residual = Residual(problem, j, w);
  const double* x = problem.row(j);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += residual * x[i];
}

// w <- w - rate * 1/n sum
void Update(std::span<double> w, std::span<const double> sum, double rate, std::size_t samples) {
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * (sum[i] / static_cast<double>(samples));
}

class Stopwatch {
 public:
  void Stop(Descent& descent) const {
    descent.wall_s = MonotonicSeconds() - wall_s_;
    descent.cpu_s = CpuSeconds() - cpu_s_;
  }

 private:
  double wall_s_ = MonotonicSeconds(), cpu_s_ = CpuSeconds();
};

// What the workers of a descent in step do between broadcast and update: two ways for one worker to help the
// root to the sum of all gradients. Sum() returns it at the root; elsewhere the result means nothing.

// Adds up its own samples and sends the sum.
class LocalReduction {
 public:
  LocalReduction(const LeastSquares& problem, Communicator& comm)
      : problem_(problem),
        comm_(comm),
        own_(problem.samples, comm.rank(), comm.size()),
        sums_(problem.dimensions) {}

  std::span<const double> Sum(std::span<const double> w) {
    const std::span<double> local =
        Map(own_, sums_, [&](std::size_t j, std::span<double> sum) { AddGradient(problem_, j, w, sum); });
    ReduceSum(comm_, local);
    return local;
  }

 private:
  const LeastSquares& problem_;
  Communicator& comm_;
  OwnBlocks own_;
  ShardSum<double> sums_;
};

// Sends every sample's gradient. A reduction takes one vector from each worker, so the samples go up m at a
// time; a worker that has run out of samples before the others sends zeros.
class NoReduction {
 public:
  NoReduction(const LeastSquares& problem, Communicator& comm)
      : problem_(problem),
        comm_(comm),
        own_(problem.samples, comm.rank(), comm.size()),
        most_samples_((problem.samples + comm.size() - 1) / comm.size()),
        one_(problem.dimensions),
        total_(problem.dimensions) {}

  std::span<const double> Sum(std::span<const double> w) {
    total_.assign(total_.size(), 0.0);
    for (std::size_t k = 0; k < most_samples_; ++k) {
      one_.assign(one_.size(), 0.0);
      if (k < own_.samples()) AddGradient(problem_, own_.Begin(own_.first()) + k, w, one_);
      ReduceSum(comm_, one_);
      for (std::size_t i = 0; i < total_.size(); ++i) total_[i] += one_[i];
    }
    return total_;
  }

 private:
  const LeastSquares& problem_;
  Communicator& comm_;
  OwnBlocks own_;
  std::size_t most_samples_;  // of any worker
  std::vector<double> one_, total_;
};

template <class GradientSum>
Descent DescendInStep(const LeastSquares& problem, const DescentSettings& settings, int workers) {
  TRIREME_CHECK(workers == 1 || workers == 2 || workers == 4 || workers == kBlocks);
  Descent descent;
  descent.traffic.resize(workers);
  const Stopwatch stopwatch;
  RunRanks(workers, [&](Communicator& comm) {
    GradientSum gradient(problem, comm);
    std::vector<double> w(problem.dimensions, 0.0);
    for (int round = 1; round <= settings.rounds; ++round) {
      comm.Broadcast(std::span<double>(w));
      const std::span<const double> sum = gradient.Sum(w);  // map and reduce
      if (comm.rank() != kRoot) continue;
      Update(w, sum, settings.rate, problem.samples);
      if (settings.observe) settings.observe(round, w);
    }
    descent.traffic[comm.rank()] = comm.traffic();
    if (comm.rank() == kRoot) descent.w = std::move(w);
  });
  stopwatch.Stop(descent);
  return descent;
}

}  // namespace

LeastSquares MakeLeastSquares(std::size_t samples, std::size_t dimensions, double noise, std::uint64_t seed) {
  TRIREME_CHECK(samples > 0 && dimensions > 0);
  LeastSquares problem{.samples = samples,
                       .dimensions = dimensions,
                       .x = std::vector<double>(samples * dimensions),
                       .y = std::vector<double>(samples),
                       .truth = std::vector<double>(dimensions)};
  RandomStream of_truth(seed, Purpose::kTest, 0, 0);
  for (double& value : problem.truth) value = of_truth.NextNormal();
  for (std::size_t j = 0; j < samples; ++j) {
    RandomStream of_sample(seed, Purpose::kTest, static_cast<std::uint32_t>(j), 1);
    for (std::size_t i = 0; i < dimensions; ++i) problem.x[j * dimensions + i] = of_sample.NextNormal();
    problem.y[j] = Residual(problem, j, problem.truth) + noise * of_sample.NextNormal();
  }
  return problem;
}

double Residual(const LeastSquares& problem, std::size_t j, std::span<const double> w) {
  const double* x = problem.row(j);
  double dot = 0;
  for (std::size_t i = 0; i < w.size(); ++i) dot += x[i] * w[i];
  return dot - problem.y[j];
}

double Loss(const LeastSquares& problem, std::span<const double> w) {
  double sum = 0;
  for (std::size_t j = 0; j < problem.samples; ++j) {
    const double residual = Residual(problem, j, w);
    sum += 0.5 * residual * residual;
  }
  return sum / static_cast<double>(problem.samples);
}

// Nothing is shared with the parallel descents: their frame, their map and their reduction are checked
// against these loops.
Descent SerialDescent(const LeastSquares& problem, const DescentSettings& settings) {
  const std::size_t n = problem.samples, d = problem.dimensions;
  Descent descent;
  const Stopwatch stopwatch;
  std::vector<double>& w = descent.w;
  w.assign(d, 0.0);
  std::vector<double> s[8];  // a sum per block
  for (int round = 1; round <= settings.rounds; ++round) {
    for (std::size_t block = 0; block < 8; ++block) {
      s[block].assign(d, 0.0);
      for (std::size_t j = n * block / 8; j < n * (block + 1) / 8; ++j) {
        const double* x = problem.row(j);
        double residual = 0;
        for (std::size_t i = 0; i < d; ++i) residual += x[i] * w[i];
        residual -= problem.y[j];
        for (std::size_t i = 0; i < d; ++i) s[block][i] += residual * x[i];
      }
    }
    for (std::size_t i = 0; i < d; ++i) {
      const double sum =
          ((s[0][i] + s[1][i]) + (s[2][i] + s[3][i])) + ((s[4][i] + s[5][i]) + (s[6][i] + s[7][i]));
      w[i] -= settings.rate * (sum / static_cast<double>(n));
    }
    if (settings.observe) settings.observe(round, w);
  }
  stopwatch.Stop(descent);
  return descent;
}

Descent SynchronousDescent(const LeastSquares& problem, const DescentSettings& settings, int workers) {
  return DescendInStep<LocalReduction>(problem, settings, workers);
}

Descent NaiveDescent(const LeastSquares& problem, const DescentSettings& settings, int workers) {
  return DescendInStep<NoReduction>(problem, settings, workers);
}

Descent AsynchronousDescent(const LeastSquares& problem, const DescentSettings& settings, int workers,
                            const Disturbance& disturbance) {
  TRIREME_CHECK(workers >= 1 && workers <= kBlocks);
  const std::size_t d = problem.dimensions;
  SharedParameters shared({.kind = OptimizerKind::kSgd}, false, std::vector<float>(d, 0.0f));
  const UpdateRule rule{.learning_rate = static_cast<float>(settings.rate)};
  std::atomic<std::uint64_t> pushes = 0;
  std::mutex observing;        // held while settings.observe runs; guards `observed`
  std::uint64_t observed = 0;  // the newest push that was shown
  Descent descent;
  descent.traffic.resize(workers);
  std::vector<Staleness> staleness(workers);
  const Stopwatch stopwatch;
  RunRanks(workers, [&](Communicator& comm) {
    const int worker = comm.rank();
    const std::unique_ptr<ParameterStore> store = MakeSharedStore(shared, worker, disturbance.schedule);
    const OwnBlocks own(problem.samples, worker, workers);
    std::vector<double> w(d), sum(d);
    std::vector<float> gradient(d);
    comm.Barrier();  // all start together; from here on nobody waits
    for (int round = 0; round < settings.rounds; ++round) {
      const std::span<const float> pulled = store->Pull();
      w.assign(pulled.begin(), pulled.end());
      sum.assign(d, 0.0);
      for (std::size_t j = own.Begin(own.first()); j < own.Begin(own.last()); ++j)
        AddGradient(problem, j, w, sum);
      for (std::size_t i = 0; i < d; ++i)
        gradient[i] = static_cast<float>(sum[i] / static_cast<double>(problem.samples));
      if (disturbance.before_push) disturbance.before_push(worker);
      store->Push(gradient, rule);
      const std::uint64_t made = pushes.fetch_add(1, std::memory_order_relaxed) + 1;
      if (settings.observe && made % static_cast<std::uint64_t>(workers) == 0) {
        const std::lock_guard lock(observing);
        if (made < observed) continue;
        observed = made;
        w.assign(store->params().begin(), store->params().end());
        settings.observe(static_cast<int>(made / static_cast<std::uint64_t>(workers)), w);
      }
    }
    if (disturbance.schedule != nullptr) disturbance.schedule->Leave(worker);
    descent.traffic[worker] = store->traffic();
    staleness[worker] = store->staleness();
  });
  stopwatch.Stop(descent);
  for (const Staleness& of_worker : staleness) descent.staleness += of_worker;
  descent.pushes = pushes;
  const std::unique_ptr<ParameterStore> store = MakeSharedStore(shared, 0, nullptr);
  descent.w.assign(store->params().begin(), store->params().end());
  return descent;
}

Fit Assess(const LeastSquares& problem, std::span<const double> w, double margin, int workers) {
  TRIREME_CHECK(workers == 1 || workers == 2 || workers == 4 || workers == kBlocks);
  Fit fit;
  RunRanks(workers, [&](Communicator& comm) {
    const OwnBlocks own(problem.samples, comm.rank(), comm.size());
    ShardSum<double> sums(2);  // loss, samples
    std::uint64_t close = 0;
    const std::span<double> local = Map(own, sums, [&](std::size_t j, std::span<double> sum) {
      const double residual = Residual(problem, j, w);
      sum[0] += 0.5 * residual * residual;
      sum[1] += 1;
      close += std::abs(residual) <= margin;
    });
    ReduceMean(comm, local);
    close = ReduceCount(comm, close);
    if (comm.rank() == kRoot) fit = {.loss = local[0], .close = close};
  });
  return fit;
}

}  // namespace trireme
