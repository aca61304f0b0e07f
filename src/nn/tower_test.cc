#include "trireme/nn/tower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/nn/plain_tower.h"

namespace trireme {
namespace {

constexpr Activation kActivations[] = {Activation::kTanh, Activation::kRelu, Activation::kElu,
                                       Activation::kSilu};

struct Results {
  std::vector<float> out, gradient, dx;
};

// A tower with random parameters (the floats between tensors are zero), inputs and output gradients.
struct Problem {
  TowerSpec spec;
  int n;
  ParamLayout layout;
  Tower tower;
  std::vector<float> params, x, dout;

  Problem(TowerSpec tower_spec, int samples, std::uint64_t seed = 1)
      : spec(std::move(tower_spec)), n(samples), tower(spec, layout), params(layout.size()) {
    RandomStream random(seed, Purpose::kTest, 0, 0);
    const auto normal = [&](double scale) { return static_cast<float>(scale * random.NextNormal()); };
    for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
      const TensorInfo& tensor = layout.tensors()[t];
      const bool head = t + 2 >= layout.tensors().size();
      const double scale = tensor.shape.size() == 1 ? 0.5 : 1.0 / std::sqrt(tensor.shape[head ? 1 : 0]);
      for (std::size_t i = 0; i < tensor.size; ++i) params[tensor.offset + i] = normal(scale);
    }
    for (int i = 0; i < n * spec.inputs; ++i) x.push_back(normal(1.0));
    for (int i = 0; i < n * spec.outputs; ++i) dout.push_back(normal(1.0));
  }

  Results Run(TowerWorkspace& workspace) const {
    Results results{{}, std::vector<float>(layout.size()), std::vector<float>(x.size())};
    tower.Forward(params.data(), x.data(), n, workspace);
    const std::size_t count = static_cast<std::size_t>(n) * spec.outputs;
    results.out.assign(workspace.out().begin(), workspace.out().begin() + count);
    tower.PrepareBackward(params.data(), workspace);
    tower.Backward(params.data(), x.data(), dout.data(), n, workspace, results.gradient.data(),
                   results.dx.data());
    return results;
  }
  Results Run() const {
    TowerWorkspace workspace(tower, n);
    return Run(workspace);
  }
};

struct ReferenceResults {
  Numbers out, gradient, dx;
  double closest_to_zero;  // see PlainTower
};

template <class T>
Numbers Row(const std::vector<T>& rows, int b, int width) {
  return {rows.begin() + b * width, rows.begin() + (b + 1) * width};
}

ReferenceResults RunReference(const Problem& problem) {
  const PlainTower plain(problem.spec, problem.layout);
  const Numbers params = ToNumbers(problem.params);
  ReferenceResults results{{}, Numbers(params.size()), {}, std::numeric_limits<double>::infinity()};
  for (int b = 0; b < problem.n; ++b) {
    const Numbers x = Row(problem.x, b, problem.spec.inputs);
    const Numbers out = plain.Forward(params, x);
    const Numbers dx =
        plain.AddGradient(params, x, Row(problem.dout, b, problem.spec.outputs), results.gradient);
    results.out.insert(results.out.end(), out.begin(), out.end());
    results.dx.insert(results.dx.end(), dx.begin(), dx.end());
    results.closest_to_zero = std::min(results.closest_to_zero, plain.ClosestToZero(params, x));
  }
  return results;
}

// Largest difference, relative to the largest value expected (or 1).
template <class A, class B>
double Difference(const A& actual, const B& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double largest = 1, difference = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(expected[i]));
    const double d = std::fabs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (!(d <= difference)) difference = d;
    if (std::isnan(difference)) break;
  }
  return difference / largest;
}

template <class Expected>
void ExpectClose(const Results& actual, const Expected& expected, double tolerance) {
  EXPECT_LT(Difference(actual.out, expected.out), tolerance);
  EXPECT_LT(Difference(actual.gradient, expected.gradient), tolerance);
  EXPECT_LT(Difference(actual.dx, expected.dx), tolerance);
}

void ExpectSameBits(const Results& a, const Results& b) {
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.gradient, b.gradient);
  EXPECT_EQ(a.dx, b.dx);
}

// Random problems until none of the numbers ahead of a ReLU is so small that rounding decides its sign.
Problem ProblemAwayFromKinks(const TowerSpec& spec, int n) {
  for (std::uint64_t seed = 1;; ++seed) {
    Problem problem(spec, n, seed);
    if (spec.activation != Activation::kRelu || RunReference(problem).closest_to_zero > 2e-6) return problem;
  }
}

TowerSpec Spec(int inputs, std::vector<int> hidden, int outputs, Activation activation) {
  return {.name = "t",
          .inputs = inputs,
          .hidden = std::move(hidden),
          .outputs = outputs,
          .activation = activation};
}

constexpr double kTolerance = 3e-6;

void CheckAgainstReference(const TowerSpec& spec, int n) {
  SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(spec.activation) << " layers "
                                  << spec.hidden.size() << " of " << spec.hidden[0] << " outputs "
                                  << spec.outputs << " n " << n);
  const Problem problem = ProblemAwayFromKinks(spec, n);
  ExpectClose(problem.Run(), RunReference(problem), kTolerance);
}

TEST(PlainTowerTest, GradientsAreTheFiniteDifferences) {
  for (const Activation activation : kActivations) {
    const Problem problem = ProblemAwayFromKinks(Spec(3, {6, 5}, 4, activation), 5);
    const ReferenceResults expected = RunReference(problem);
    Numbers params = ToNumbers(problem.params), x = ToNumbers(problem.x);
    const PlainTower plain(problem.spec, problem.layout);
    const auto loss = [&] {
      double sum = 0;
      for (int b = 0; b < problem.n; ++b) {
        const Numbers out = plain.Forward(params, Row(x, b, problem.spec.inputs));
        for (int o = 0; o < problem.spec.outputs; ++o)
          sum += out[o] * problem.dout[b * problem.spec.outputs + o];
      }
      return sum;
    };
    const auto slope = [&](double& value) {
      constexpr double kStep = 1e-6;  // stays on one side of every kink
      const double before = value;
      value = before + kStep;
      const double above = loss();
      value = before - kStep;
      const double below = loss();
      value = before;
      return (above - below) / (2 * kStep);
    };
    for (const TensorInfo& tensor : problem.layout.tensors()) {
      for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        ASSERT_NEAR(expected.gradient[i], slope(params[i]), 1e-7) << tensor.name;
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(expected.dx[i], slope(x[i]), 1e-7);
  }
}

// The engine itself, without the reference in between, as well as floats allow.
TEST(TowerTest, GradientsAreTheFiniteDifferences) {
  for (const Activation activation : {Activation::kTanh, Activation::kElu, Activation::kSilu}) {
    Problem problem(Spec(3, {16, 11}, 3, activation), 7);
    const std::vector<float> gradient = problem.Run().gradient;
    TowerWorkspace workspace(problem.tower, problem.n);
    const auto loss = [&] {
      problem.tower.Forward(problem.params.data(), problem.x.data(), problem.n, workspace);
      double sum = 0;
      for (std::size_t i = 0; i < problem.dout.size(); ++i) {
        sum += static_cast<double>(workspace.out()[i]) * problem.dout[i];
      }
      return sum;
    };
    for (const TensorInfo& tensor : problem.layout.tensors()) {
      for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        const float before = problem.params[i];
        problem.params[i] = before + 0x1p-6f;
        const double above = loss();
        problem.params[i] = before - 0x1p-6f;
        const double below = loss();
        problem.params[i] = before;
        ASSERT_NEAR(gradient[i], (above - below) * 0x1p5, 5e-3) << tensor.name;
      }
    }
  }
}

TEST(TowerTest, EveryActivationHeadWidthAndBatch) {
  for (const Activation activation : kActivations) {
    for (int outputs = 1; outputs <= 20; ++outputs) {
      for (const int n : {1, 3, 63, 64, 65, 130}) {
        CheckAgainstReference(Spec(3, {12, 9}, outputs, activation), n);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(TowerTest, EveryWidthAndDepth) {
  const std::vector<std::vector<int>> shapes = {{1},       {5},          {8},        {64},
                                                {128},     {64, 64},     {100, 24},  {7, 130},
                                                {256, 40}, {16, 16, 16}, {1, 33, 1}, {65, 3, 129}};
  for (const Activation activation : kActivations) {
    for (const std::vector<int>& hidden : shapes) {
      for (const auto& [inputs, n] : {std::pair{1, 1}, {4, 65}, {17, 130}}) {
        CheckAgainstReference(Spec(inputs, hidden, 3, activation), n);
      }
    }
  }
}

TEST(TowerTest, BatchesOfManyChunks) {
  for (const int n : {256, 300, 513}) CheckAgainstReference(Spec(4, {24, 16}, 3, Activation::kTanh), n);
}

TEST(TowerTest, PortableKernelsAgreeWithTheDefault) {
  const Isa best = CurrentIsa();
  for (const Activation activation : kActivations) {
    const Problem problem = ProblemAwayFromKinks(Spec(5, {64, 20}, 9, activation), 130);
    const Results expected = problem.Run();
    UsePortableGemm(true);
    const Results portable_gemm = problem.Run();
    OverrideIsa(Isa::kPortable);
    const Results portable = problem.Run();
    UsePortableGemm(false);
    const Results portable_isa = problem.Run();
    OverrideIsa(best);
    ExpectClose(portable_gemm, expected, 1e-5);
    ExpectClose(portable, expected, 1e-5);
    ExpectClose(portable_isa, expected, 1e-5);
  }
}

TEST(TowerTest, BackwardAddsToTheGradient) {
  const Problem problem(Spec(4, {32, 24}, 10, Activation::kSilu), 70);
  const Results once = problem.Run();
  TowerWorkspace workspace(problem.tower, problem.n);
  problem.tower.Forward(problem.params.data(), problem.x.data(), problem.n, workspace);
  problem.tower.PrepareBackward(problem.params.data(), workspace);
  std::vector<float> gradient(problem.layout.size(), 0.25f), expected;
  for (int call = 0; call < 3; ++call) {
    problem.tower.Backward(problem.params.data(), problem.x.data(), problem.dout.data(), problem.n, workspace,
                           gradient.data());
  }
  for (const float g : once.gradient) expected.push_back(0.25f + 3 * g);
  EXPECT_LT(Difference(gradient, expected), 1e-5);
}

TEST(TowerTest, FloatsBetweenTensorsKeepAGradientOfZero) {
  const Problem problem(Spec(3, {5, 7}, 3, Activation::kElu), 65);
  std::vector<float> gradient = problem.Run().gradient;
  for (const TensorInfo& tensor : problem.layout.tensors()) {
    for (std::size_t i = 0; i < tensor.size; ++i) gradient[tensor.offset + i] = 0;
  }
  EXPECT_EQ(gradient, std::vector<float>(gradient.size()));
}

TEST(TowerTest, InputGradientIsOptionalAndChangesNothingElse) {
  const Problem problem(Spec(4, {16, 16}, 2, Activation::kTanh), 65);
  const Results with = problem.Run();
  TowerWorkspace workspace(problem.tower, problem.n);
  std::vector<float> gradient(problem.layout.size());
  problem.tower.Forward(problem.params.data(), problem.x.data(), problem.n, workspace);
  problem.tower.PrepareBackward(problem.params.data(), workspace);
  problem.tower.Backward(problem.params.data(), problem.x.data(), problem.dout.data(), problem.n, workspace,
                         gradient.data());
  EXPECT_EQ(gradient, with.gradient);
}

TEST(TowerTest, AWorkspaceServesAnyBatchUpToItsCapacity) {
  for (const Activation activation : kActivations) {
    const TowerSpec spec = Spec(4, {24, 17}, 3, activation);
    TowerWorkspace workspace(Problem(spec, 1).tower, 200);
    for (const int n : {200, 3, 64, 65, 1, 130, 200}) {
      const Problem problem(spec, n, 7);
      ExpectSameBits(problem.Run(workspace), problem.Run());
    }
  }
}

TEST(TowerTest, ThreadsShareOneTower) {
  const Problem problem(Spec(4, {40, 24}, 3, Activation::kSilu), 131);
  std::vector<Results> results(4);
  std::vector<std::thread> threads;
  for (Results& result : results) threads.emplace_back([&] { result = problem.Run(); });
  for (std::thread& thread : threads) thread.join();
  const Results expected = problem.Run();
  for (const Results& result : results) ExpectSameBits(result, expected);
}

TEST(TowerTest, ANanInTheInputReachesTheOutput) {
  for (const Activation activation : kActivations) {
    Problem problem(Spec(4, {16, 9}, 2, activation), 5);
    problem.x[2 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
    const Results results = problem.Run();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(std::isnan(results.out[i]), i / 2 == 2) << i;
  }
}

}  // namespace
}  // namespace trireme
