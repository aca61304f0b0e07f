// Least squares by gradient descent: alone, in step, out of step, and wastefully.
//
//   L(w) = 1/(2n) sum_j (x_j^T w - y_j)^2        gradient  1/n sum_j (x_j^T w - y_j) x_j
//
// over n samples in d dimensions. All descents start at w = 0 and are given the same rounds and rate.
//
//   SerialDescent        plain loops; knows nothing of workers. The others are measured against it.
//   SynchronousDescent   broadcast w, map, reduce, update at the root. The same bits as SerialDescent.
//   AsynchronousDescent  workers pull, compute and push as they please. Another path to the same minimum.
//   NaiveDescent         synchronous, but every sample's gradient is reduced on its own: n * d numbers
//                        travel where m * d would do.
//
// docs/least-squares.md explains them. Each call starts its own threads and joins them before it returns;
// calls may run side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/store/parameter_store.h"
#include "trireme/store/schedule.h"

namespace trireme {

struct LeastSquares {
  std::size_t samples = 0, dimensions = 0;
  std::vector<double> x;      // [samples, dimensions]
  std::vector<double> y;      // [samples]
  std::vector<double> truth;  // [dimensions]: y_j = x_j^T truth + noise

  const double* row(std::size_t j) const { return x.data() + j * dimensions; }
};

// Standard normal x and truth; normal noise with deviation `noise`. A function of its arguments alone: sample
// j is the same however many others there are.
LeastSquares MakeLeastSquares(std::size_t samples, std::size_t dimensions, double noise, std::uint64_t seed);

// x_j^T w - y_j
double Residual(const LeastSquares& problem, std::size_t j, std::span<const double> w);
double Loss(const LeastSquares& problem, std::span<const double> w);

struct DescentSettings {
  int rounds = 100;
  double rate = 0.5;
  // Called with the rounds made so far and w, by one thread at a time: after each update of the root or, in
  // an asynchronous descent of m workers, after each m-th push by the worker that made it (left out when a
  // later one was faster). Empty: not called.
  std::function<void(int rounds, std::span<const double> w)> observe = {};
};

struct Descent {
  std::vector<double> w;
  double wall_s = 0, cpu_s = 0;  // of all threads
  std::vector<Traffic> traffic;  // by worker; empty for SerialDescent
  std::uint64_t pushes = 0;      // these two in an asynchronous descent only
  Staleness staleness = {};
};

Descent SerialDescent(const LeastSquares& problem, const DescentSettings& settings);

// Require 1, 2, 4 or 8 workers.
Descent SynchronousDescent(const LeastSquares& problem, const DescentSettings& settings, int workers);
Descent NaiveDescent(const LeastSquares& problem, const DescentSettings& settings, int workers);

// What a test may do to an asynchronous descent.
struct Disturbance {
  std::function<void(int worker)> before_push = {};  // called between computing a gradient and pushing it
  Schedule* schedule = nullptr;                      // the order of pulls and pushes; null: as it comes
};

// Requires 1 to 8 workers. Every worker makes `rounds` pushes of its share of the gradient, 1/n times the sum
// over its own samples, so that one push of each is as far as one synchronous round goes. w is held as
// floats.
Descent AsynchronousDescent(const LeastSquares& problem, const DescentSettings& settings, int workers,
                            const Disturbance& disturbance = {});

// How well w fits, computed by `workers` workers (1, 2, 4 or 8).
struct Fit {
  double loss = 0;          // a mean over samples
  std::uint64_t close = 0;  // samples with |x^T w - y| <= margin
};
Fit Assess(const LeastSquares& problem, std::span<const double> w, double margin, int workers);

}  // namespace trireme
