#include "least_squares/least_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "least_squares/map_reduce.h"
#include "trireme/comm/run_ranks.h"

namespace trireme {
namespace {

// The minimum over samples [begin, end) from the normal equations X^T X w = X^T y, by Gaussian elimination
// with pivoting.
std::vector<double> ClosedForm(const LeastSquares& problem, std::size_t begin, std::size_t end) {
  const std::size_t d = problem.dimensions;
  std::vector<std::vector<double>> a(d, std::vector<double>(d + 1, 0.0));  // [X^T X | X^T y]
  for (std::size_t j = begin; j < end; ++j) {
    const double* x = problem.row(j);
    for (std::size_t r = 0; r < d; ++r) {
      for (std::size_t c = 0; c < d; ++c) a[r][c] += x[r] * x[c];
      a[r][d] += x[r] * problem.y[j];
    }
  }
  for (std::size_t k = 0; k < d; ++k) {
    std::size_t pivot = k;
    for (std::size_t r = k + 1; r < d; ++r)
      if (std::abs(a[r][k]) > std::abs(a[pivot][k])) pivot = r;
    std::swap(a[k], a[pivot]);
    for (std::size_t r = 0; r < d; ++r) {
      if (r == k) continue;
      const double factor = a[r][k] / a[k][k];
      for (std::size_t c = k; c <= d; ++c) a[r][c] -= factor * a[k][c];
    }
  }
  std::vector<double> w(d);
  for (std::size_t k = 0; k < d; ++k) w[k] = a[k][d] / a[k][k];
  return w;
}

std::vector<double> ClosedForm(const LeastSquares& problem) {
  return ClosedForm(problem, 0, problem.samples);
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

Traffic Total(const std::vector<Traffic>& by_worker) {
  Traffic total;
  for (const Traffic& traffic : by_worker) total += traffic;
  return total;
}

TEST(LeastSquares, ProblemIsAFunctionOfItsSeed) {
  const LeastSquares a = MakeLeastSquares(50, 3, 0.1, 7), b = MakeLeastSquares(80, 3, 0.1, 7);
  EXPECT_TRUE(std::equal(a.x.begin(), a.x.end(), b.x.begin()));
  EXPECT_TRUE(std::equal(a.y.begin(), a.y.end(), b.y.begin()));
  EXPECT_NE(a.x, MakeLeastSquares(50, 3, 0.1, 8).x);
  EXPECT_EQ(Loss(MakeLeastSquares(50, 3, 0.0, 7), a.truth), 0);
  EXPECT_NEAR(Loss(MakeLeastSquares(20'000, 3, 0.1, 7), a.truth), 0.005,
              0.0002);  // half the noise's variance
}

TEST(SerialDescent, ReachesTheClosedFormSolution) {
  for (const std::size_t d : {1, 3, 10}) {
    const LeastSquares problem = MakeLeastSquares(500, d, 0.5, 3);
    const Descent descent = SerialDescent(problem, {.rounds = 300, .rate = 0.5});
    const std::vector<double> best = ClosedForm(problem);
    EXPECT_LT(Distance(descent.w, best), 1e-12);
    EXPECT_GT(Distance(descent.w, problem.truth), 1e-3);  // the noise moves the minimum: a visible distance
  }
}

TEST(SerialDescent, FirstStepFollowsTheGradientOfTheLoss) {
  const LeastSquares problem = MakeLeastSquares(60, 4, 0.5, 3);
  const Descent descent = SerialDescent(problem, {.rounds = 1, .rate = 1.0});
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> right(4, 0.0), left(4, 0.0);
    right[i] = 1e-4;
    left[i] = -1e-4;
    EXPECT_NEAR(-descent.w[i], (Loss(problem, right) - Loss(problem, left)) / 2e-4, 1e-9);
  }
}

class Workers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(PowersOfTwo, Workers, testing::Values(1, 2, 4, 8));

// Synchronous parallel descent is gradient descent: not nearly, but in every bit. Some of the blocks of the
// first problems are empty, and most cannot be of equal size.
TEST_P(Workers, SynchronousDescentHasTheBitsOfSerialDescent) {
  for (const std::size_t n : {1, 5, 8, 63, 64, 1001}) {
    for (const std::size_t d : {1, 7, 100}) {
      const LeastSquares problem = MakeLeastSquares(n, d, 0.3, n + d);
      std::vector<std::vector<double>> paths[2];
      DescentSettings settings{.rounds = 20, .rate = 0.01};
      settings.observe = [&](int rounds, std::span<const double> w) {
        paths[0].emplace_back(w.begin(), w.end());
        EXPECT_EQ(rounds, paths[0].size());
      };
      const Descent serial = SerialDescent(problem, settings);
      paths[0].swap(paths[1]);
      const Descent parallel = SynchronousDescent(problem, settings, GetParam());
      EXPECT_TRUE(SameBits(parallel.w, serial.w)) << "n " << n << ", d " << d;
      EXPECT_EQ(paths[0], paths[1]) << "n " << n << ", d " << d;
      EXPECT_EQ(paths[0].size(), 20);
    }
  }
}

// The order of additions decides the bits, and the test above would see another one. After few rounds only:
// close to the minimum the descents come together again.
TEST_P(Workers, AnotherOrderOfAdditionsGivesOtherBits) {
  const LeastSquares problem = MakeLeastSquares(1001, 30, 0.3, 1);
  const DescentSettings settings{.rounds = 3, .rate = 0.5};
  const Descent serial = SerialDescent(problem, settings);
  const Descent naive = NaiveDescent(problem, settings, GetParam());
  EXPECT_FALSE(SameBits(naive.w, serial.w));
  EXPECT_LT(Distance(naive.w, serial.w), 1e-13);
}

TEST_P(Workers, TrafficFollowsTheFormulas) {
  const std::uint64_t m = GetParam(), rounds = 5;
  for (const std::uint64_t n : {16, 101}) {
    for (const std::uint64_t d : {1, 9}) {
      const LeastSquares problem = MakeLeastSquares(n, d, 0.1, 1);
      const DescentSettings settings{.rounds = rounds, .rate = 0.01};
      // Broadcast: the root sends w to m - 1 others.
      const std::uint64_t broadcast = (m - 1) * d * sizeof(double);

      const Descent local = SynchronousDescent(problem, settings, GetParam());
      ASSERT_EQ(local.traffic.size(), m);
      EXPECT_EQ(local.traffic[kRoot].bytes, rounds * broadcast);
      for (std::uint64_t worker = 1; worker < m; ++worker) {
        EXPECT_EQ(local.traffic[worker].bytes, rounds * d * sizeof(double));
        EXPECT_EQ(local.traffic[worker].messages, rounds);
      }
      EXPECT_EQ(Total(local.traffic).bytes, rounds * 2 * broadcast);
      EXPECT_EQ(Total(local.traffic).messages, rounds * 2 * (m - 1));

      const Descent naive = NaiveDescent(problem, settings, GetParam());
      const std::uint64_t turns = (n + m - 1) / m;  // samples of the worker that has most
      EXPECT_EQ(Total(naive.traffic).bytes, rounds * (broadcast + turns * (m - 1) * d * sizeof(double)));
      EXPECT_EQ(Total(naive.traffic).messages, rounds * (m - 1) * (1 + turns));
    }
  }
}

TEST_P(Workers, ReductionsGiveTheRootSumMeanAndCount) {
  constexpr std::size_t kSamples =
      21;  // values 0, 1, ..., 20: unequal shares, so the mean of means is not 10
  RunRanks(GetParam(), [&](Communicator& comm) {
    const OwnBlocks own(kSamples, comm.rank(), comm.size());
    ShardSum<double> sums(2);
    const auto value_and_one = [](std::size_t j, std::span<double> sum) {
      sum[0] += static_cast<double>(j);
      sum[1] += 1;
    };
    const bool root = comm.rank() == kRoot;

    std::span<double> local = Map(own, sums, value_and_one);
    const double own_sum = local[0], own_count = local[1];
    EXPECT_EQ(own_count, own.samples());
    ReduceSum(comm, local);
    EXPECT_EQ(local[0], root ? 210 : own_sum);
    EXPECT_EQ(local[1], root ? 21 : own_count);

    local = Map(own, sums, value_and_one);
    ReduceMean(comm, local);
    EXPECT_EQ(local[0], root ? 10 : own_sum);
    EXPECT_EQ(local[1], root ? 21 : own_count);

    EXPECT_EQ(ReduceCount(comm, own.samples()), root ? kSamples : own.samples());
    EXPECT_EQ(comm.traffic().bytes, root ? 0 : (2 + 2 + 1) * sizeof(double));
  });
}

TEST(MapReduce, MeanOfNothingIsZero) {
  RunRanks(2, [](Communicator& comm) {
    double local[] = {0, 0};
    ReduceMean(comm, local);
    EXPECT_EQ(local[0], 0);
  });
}

TEST_P(Workers, AssessmentAgreesWithTheSerialLoss) {
  const LeastSquares problem = MakeLeastSquares(1001, 5, 0.1, 2);
  const Fit fit = Assess(problem, problem.truth, 0.1, GetParam());
  EXPECT_NEAR(fit.loss, Loss(problem, problem.truth), 1e-15);
  EXPECT_NEAR(static_cast<double>(fit.close), 0.683 * 1001,
              60);  // within one deviation; four of its deviations
  EXPECT_EQ(fit.close, Assess(problem, problem.truth, 0.1, 1).close);
  EXPECT_EQ(Assess(problem, problem.truth, 100, GetParam()).close, 1001);
}

class AsynchronousWorkers : public testing::TestWithParam<int> {
 protected:
  // However the operating system schedules the workers: without noise all of them agree about the minimum,
  // and with noise w ends among the minima of their own samples.
  static void ExpectConvergence(int workers, const Disturbance& disturbance) {
    const DescentSettings settings{.rounds = 400, .rate = 0.5};
    const LeastSquares exact = MakeLeastSquares(1000, 5, 0.0, 4);
    const Descent descent = AsynchronousDescent(exact, settings, workers, disturbance);
    EXPECT_LT(Distance(descent.w, exact.truth), 1e-5);
    EXPECT_EQ(descent.pushes, 400 * workers);
    EXPECT_EQ(descent.staleness.count(), descent.pushes);

    const LeastSquares noisy = MakeLeastSquares(1000, 5, 0.1, 4);
    const std::vector<double> best = ClosedForm(noisy);
    double widest = 1e-5;
    for (int worker = 0; worker < workers; ++worker) {
      const OwnBlocks own(noisy.samples, worker, workers);
      widest =
          std::max(widest, Distance(ClosedForm(noisy, own.Begin(own.first()), own.Begin(own.last())), best));
    }
    EXPECT_LT(widest, 0.05);
    EXPECT_LT(Distance(AsynchronousDescent(noisy, settings, workers, disturbance).w, best), 1.5 * widest);
  }
};
INSTANTIATE_TEST_SUITE_P(Numbers, AsynchronousWorkers, testing::Values(1, 2, 3, 4));

TEST_P(AsynchronousWorkers, ReachTheMinimum) { ExpectConvergence(GetParam(), {}); }

// Late by work of its own: to yield takes as long as others on the machine like.
TEST_P(AsynchronousWorkers, ReachTheMinimumWithOneAlwaysLate) {
  Disturbance disturbance;
  disturbance.before_push = [](int worker) {
    std::atomic<int> work{worker == 0 ? 10'000 : 0};
    while (work > 0) --work;
  };
  ExpectConvergence(GetParam(), disturbance);
}

TEST_P(AsynchronousWorkers, CountTwoMessagesPerPush) {
  const LeastSquares problem = MakeLeastSquares(100, 5, 0.1, 1);
  const Descent descent = AsynchronousDescent(problem, {.rounds = 10, .rate = 0.1}, GetParam());
  ASSERT_EQ(descent.traffic.size(), GetParam());
  for (const Traffic& traffic : descent.traffic) {
    EXPECT_EQ(traffic.messages, 20);
    EXPECT_EQ(traffic.bytes, 20 * 5 * sizeof(float));
  }
}

// All pull, then all push: the mean staleness is that of a queue, and since nobody sees another's push before
// its own, m pushes are one synchronous round up to the rounding of floats.
TEST(AsynchronousDescent, InStepItIsSynchronousDescent) {
  const LeastSquares problem = MakeLeastSquares(1000, 5, 0.1, 4);
  const DescentSettings settings{.rounds = 10, .rate = 0.3};
  Schedule schedule("0< 1< 2< 3< 0> 1> 2> 3>", 4);
  const Descent descent = AsynchronousDescent(problem, settings, 4, {.schedule = &schedule});
  const Descent synchronous = SynchronousDescent(problem, settings, 4);
  EXPECT_LT(Distance(descent.w, synchronous.w), 1e-6);
  EXPECT_GT(Distance(synchronous.w, ClosedForm(problem)), 1e-3);  // still on the way: the paths are the same
  EXPECT_EQ(descent.staleness.mean(), 1.5);
  EXPECT_EQ(descent.staleness.most, 3);
}

// One after the other: nothing is stale, and each push sees the one before.
TEST(AsynchronousDescent, TakingTurnsNothingIsStaleAndThePathIsAnother) {
  const LeastSquares problem = MakeLeastSquares(1000, 5, 0.1, 4);
  const DescentSettings settings{.rounds = 10, .rate = 0.3};
  Schedule schedule("0< 0> 1< 1>", 2);
  const Descent descent = AsynchronousDescent(problem, settings, 2, {.schedule = &schedule});
  EXPECT_EQ(descent.staleness.most, 0);
  EXPECT_GT(Distance(descent.w, SynchronousDescent(problem, settings, 2).w), 1e-4);
}

// Worker 1 pushes gradients that are five updates old as long as worker 0 is there.
TEST(AsynchronousDescent, StaleGradientsStillLeadToTheMinimum) {
  const LeastSquares problem = MakeLeastSquares(1000, 5, 0.0, 4);
  Schedule schedule("1< 0< 0> 0< 0> 0< 0> 0< 0> 0< 0> 1>", 2);
  const Descent descent =
      AsynchronousDescent(problem, {.rounds = 100, .rate = 0.5}, 2, {.schedule = &schedule});
  EXPECT_LT(Distance(descent.w, problem.truth), 1e-5);
  EXPECT_EQ(descent.staleness.pushes[5], 20);
  EXPECT_EQ(descent.staleness.most, 5);
}

TEST_P(AsynchronousWorkers, AreObservedInOrderUpToTheLastPush) {
  const LeastSquares problem = MakeLeastSquares(100, 5, 0.1, 1);
  std::vector<int> seen;
  DescentSettings settings{.rounds = 30, .rate = 0.1};
  settings.observe = [&](int rounds, std::span<const double> w) {
    EXPECT_EQ(w.size(), 5);
    seen.push_back(rounds);
  };
  AsynchronousDescent(problem, settings, GetParam());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), 30);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  if (GetParam() == 1) {
    EXPECT_EQ(seen.size(), 30);
  }
}

}  // namespace
}  // namespace trireme
