// What every Executor must do, as checks that its test makes with its own `make(network)`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/nn/executor.h"
#include "trireme/nn/plain_tower.h"

namespace trireme {

// How an executor is made, and the hidden layers of the two towers it is tried with, of which some executors cannot
// have any.
struct ExecutorMaker {
  template <class Make>
  ExecutorMaker(Make make) : make(std::move(make)) {}  // NOLINT: a function is one

  std::function<std::unique_ptr<Executor>(const Network&)> make;
  std::vector<int> hidden_a = {9, 6}, hidden_b = {7};
  // Of batches up to this size every sample is also computed on its own: for executors whose every call takes long.
  int most_singles = std::numeric_limits<int>::max();
};

inline std::vector<float> RandomNumbers(std::size_t count, std::uint32_t stream, double scale = 1) {
  RandomStream random(1, Purpose::kTest, stream, 0);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * random.NextNormal());
  return values;
}

// Two towers of different shapes and a free vector, with random parameters. Floats between tensors are zero.
struct ExecutorProblem {
  // `same_inputs`: of both towers.
  explicit ExecutorProblem(const ExecutorMaker& make, Activation activation = Activation::kTanh,
                           std::uint32_t stream = 0, bool same_inputs = false)
      : network(
            {.towers =
                 {{.name = "a", .inputs = 3, .hidden = make.hidden_a, .outputs = 4, .activation = activation},
                  {.name = "b",
                   .inputs = same_inputs ? 3 : 5,
                   .hidden = make.hidden_b,
                   .outputs = 1,
                   .activation = activation}},
             .free_vectors = {{"free", 3, 0.5f}}}),
        executor(make.make(network)),
        params(network.param_count()) {
    for (const TensorInfo& tensor : network.layout().tensors()) {
      const std::vector<float> values = RandomNumbers(tensor.size, stream++, 0.5);
      std::ranges::copy(values, params.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
    }
  }

  int inputs() const { return tower(0).inputs; }
  const TowerSpec& tower(std::size_t t) const { return network.spec().towers[t]; }
  std::vector<float> Inputs(std::size_t t, int n) const {
    return RandomNumbers(static_cast<std::size_t>(n) * tower(t).inputs, 100);
  }
  std::vector<float> OutputGradients(std::size_t t, int n) const {
    return RandomNumbers(static_cast<std::size_t>(n) * tower(t).outputs, 101);
  }

  Network network;
  std::unique_ptr<Executor> executor;
  std::vector<float> params;
};

struct PassResults {
  std::vector<float> outputs, gradient, dx;
  bool operator==(const PassResults&) const = default;
};

// Forward and backward of n samples, with the parameters of the tape.
inline PassResults RunPass(const ExecutorProblem& problem, std::size_t tower, int n, Tape& tape) {
  const std::vector<float> x = problem.Inputs(tower, n), d_outputs = problem.OutputGradients(tower, n);
  const std::span<const float> outputs = tape.Forward(tower, x.data(), n);
  PassResults results{.outputs = {outputs.begin(), outputs.end()},
                      .gradient = std::vector<float>(problem.network.param_count()),
                      .dx = std::vector<float>(x.size())};
  tape.Backward(tower, d_outputs.data(), results.gradient, results.dx.data());
  return results;
}

// The same on a new tape that has just enough room.
inline PassResults RunOnNewTape(const ExecutorProblem& problem, std::size_t tower, int n) {
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(n);
  tape->SetParams(problem.params);
  return RunPass(problem, tower, n, *tape);
}

template <class Expected>
void ExpectNear(const std::vector<float>& found, const Expected& expected, double tolerance,
                const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::fabs(double{expected[i]})))
        << what << " " << i;
  }
}

// Outputs are those of the formulas; gradients, of parameters and of inputs, are the finite differences of
// the formulas in double. The tolerance is for executors that round to fewer bits.
inline void CheckFiniteDifferences(const ExecutorMaker& make, double tolerance = 1e-5,
                                   const std::vector<Activation>& activations = {
                                       Activation::kTanh, Activation::kRelu, Activation::kElu,
                                       Activation::kSilu}) {
  for (const Activation activation : activations) {
    for (std::size_t t = 0; t < 2; ++t) {
      constexpr int kSamples = 5;
      SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation) << " tower " << t);
      const ExecutorProblem problem(make, activation);
      const TowerSpec& spec = problem.tower(t);
      const PlainTower plain(spec, problem.network.layout());
      const std::vector<float> d_outputs = problem.OutputGradients(t, kSamples);
      Numbers params = ToNumbers(problem.params), x = ToNumbers(problem.Inputs(t, kSamples));
      const auto outputs = [&] {
        Numbers all;
        for (int b = 0; b < kSamples; ++b) {
          const Numbers one =
              plain.Forward(params, {x.begin() + b * spec.inputs, x.begin() + (b + 1) * spec.inputs});
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      };
      const auto slope = [&](double& value) {
        constexpr double kStep = 1e-6;
        const auto loss = [&](double moved) {
          value += moved;
          const Numbers y = outputs();
          value -= moved;
          return std::inner_product(y.begin(), y.end(), d_outputs.begin(), 0.0);
        };
        return (loss(kStep) - loss(-kStep)) / (2 * kStep);
      };
      Numbers gradient(params.size(), 0.0), dx;
      const auto [begin, end] = problem.network.TowerRange(t);
      for (std::size_t i = begin; i < end; ++i) gradient[i] = slope(params[i]);
      for (double& value : x) dx.push_back(slope(value));

      const PassResults found = RunOnNewTape(problem, t, kSamples);
      ExpectNear(found.outputs, outputs(), tolerance, "output");
      ExpectNear(found.gradient, gradient, tolerance, "gradient of parameter");
      ExpectNear(found.dx, dx, tolerance, "gradient of input");
    }
  }
}

// A batch is the sum of its samples, whatever its size.
inline void CheckBatchSizes(const ExecutorMaker& make) {
  const ExecutorProblem problem(make);
  ASSERT_GT(problem.executor->pass_size(), 0);
  for (const int n : {1, 2, 3, 17, 64, 65, 130, problem.executor->pass_size() + 1}) {
    if (n > make.most_singles) continue;
    SCOPED_TRACE(testing::Message() << n << " samples");
    const PassResults whole = RunOnNewTape(problem, 0, n);
    const std::vector<float> x = problem.Inputs(0, n), d_outputs = problem.OutputGradients(0, n);
    const std::unique_ptr<Tape> tape = problem.executor->MakeTape(1);
    tape->SetParams(problem.params);
    PassResults sum{.outputs = {}, .gradient = std::vector<float>(whole.gradient.size()), .dx = {}};
    for (int b = 0; b < n; ++b) {
      const std::span<const float> outputs = tape->Forward(0, x.data() + b * problem.tower(0).inputs, 1);
      sum.outputs.insert(sum.outputs.end(), outputs.begin(), outputs.end());
      std::vector<float> dx(problem.tower(0).inputs);
      tape->Backward(0, d_outputs.data() + b * problem.tower(0).outputs, sum.gradient, dx.data());
      sum.dx.insert(sum.dx.end(), dx.begin(), dx.end());
    }
    ExpectNear(whole.outputs, sum.outputs, 1e-5, "output");
    ExpectNear(whole.gradient, sum.gradient, 1e-4, "gradient of parameter");
    ExpectNear(whole.dx, sum.dx, 1e-5, "gradient of input");
  }
}

// One tape serves any number of samples up to its capacity, either tower and any parameters, in any order,
// with the bits of a new one.
inline void CheckTapeReuse(const ExecutorMaker& make) {
  ExecutorProblem problem(make);
  const ExecutorProblem other(make, Activation::kTanh, 50);
  const std::vector<float> first_params = problem.params;
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(200);
  for (int round = 0; round < 2; ++round) {
    for (const int n : {200, 3, 64, 1, 65, 130, 200}) {
      problem.params = n % 2 == 0 ? first_params : other.params;
      tape->SetParams(problem.params);
      EXPECT_EQ(tape->params().data(), problem.params.data());
      for (const std::size_t tower : {std::size_t{0}, std::size_t{1}, std::size_t{0}}) {
        EXPECT_TRUE(RunPass(problem, tower, n, *tape) == RunOnNewTape(problem, tower, n))
            << n << " samples through tower " << tower;
      }
    }
  }
}

// New numbers in the same place count once SetParams is called.
inline void CheckChangedParams(const ExecutorMaker& make) {
  ExecutorProblem problem(make);
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(70);
  tape->SetParams(problem.params);
  const PassResults before = RunPass(problem, 0, 70, *tape);
  for (float& value : problem.params) value *= 1.25f;
  tape->SetParams(problem.params);
  const PassResults after = RunPass(problem, 0, 70, *tape);
  EXPECT_FALSE(after == before);
  EXPECT_TRUE(after == RunOnNewTape(problem, 0, 70));
}

// Passes of both towers are held at once, and are played back in any order.
inline void CheckTowersApart(const ExecutorMaker& make) {
  const ExecutorProblem problem(make);
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(70);
  tape->SetParams(problem.params);
  const std::vector<float> x0 = problem.Inputs(0, 70), x1 = problem.Inputs(1, 40);
  const std::span<const float> outputs0 = tape->Forward(0, x0.data(), 70);
  const std::span<const float> outputs1 = tape->Forward(1, x1.data(), 40);
  const PassResults alone0 = RunOnNewTape(problem, 0, 70), alone1 = RunOnNewTape(problem, 1, 40);
  EXPECT_TRUE(std::ranges::equal(outputs0, alone0.outputs));
  EXPECT_TRUE(std::ranges::equal(outputs1, alone1.outputs));
  std::vector<float> gradient(problem.network.param_count());
  tape->Backward(0, problem.OutputGradients(0, 70).data(), gradient);
  EXPECT_TRUE(gradient == alone0.gradient);
  tape->Backward(1, problem.OutputGradients(1, 40).data(), gradient);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    ASSERT_EQ(gradient[i], alone0.gradient[i] + alone1.gradient[i]) << i;
  }
}

// Backward adds, to the tensors of its tower and to nothing else: not between tensors, not behind the
// parameters. Asking for d_x changes nothing.
inline void CheckGradientIsAdded(const ExecutorMaker& make) {
  const ExecutorProblem problem(make);
  const PassResults once = RunOnNewTape(problem, 1, 33);
  std::vector<bool> own(problem.network.param_count() + 7);
  for (const TensorInfo& tensor : problem.network.layout().tensors()) {
    if (tensor.name.starts_with("b/")) std::fill_n(own.begin() + tensor.offset, tensor.size, true);
  }
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(33);
  tape->SetParams(problem.params);
  const std::vector<float> x = problem.Inputs(1, 33), d_outputs = problem.OutputGradients(1, 33);
  std::vector<float> gradient(own.size(), 0.25f);
  tape->Forward(1, x.data(), 33);
  tape->Backward(1, d_outputs.data(), gradient);
  for (std::size_t i = 0; i < own.size(); ++i) {
    ASSERT_NEAR(gradient[i], 0.25f + (own[i] ? once.gradient[i] : 0.0f), own[i] ? 1e-5 : 0.0) << i;
  }
  std::vector<float> again(problem.network.param_count());
  tape->Forward(1, x.data(), 33);
  tape->Backward(1, d_outputs.data(), again);
  EXPECT_TRUE(again == once.gradient);
}

// Random inputs with a loss that is linear in the outputs of both towers, whose gradients are known beforehand.
// Notes what it is asked for.
class KnownSamples final : public LossSamples {
 public:
  KnownSamples(const ExecutorProblem& problem, int size)
      : problem_(problem), size_(size), inputs_(RandomNumbers(std::size_t(size) * problem.inputs(), 102)) {
    for (std::size_t t = 0; t < 2; ++t) d_outputs_.push_back(problem.OutputGradients(t, size));
  }
  int size() const override { return size_; }
  const float* Inputs(int first, int n) override {
    // A place that is soon used for other samples.
    scratch_.assign(inputs_.begin() + first * problem_.inputs(),
                    inputs_.begin() + (first + n) * problem_.inputs());
    return scratch_.data();
  }
  void Loss(int first, int n, std::span<const float* const> outputs,
            std::span<float* const> d_outputs) override {
    EXPECT_EQ(first, seen);
    EXPECT_GT(n, 0);
    longest = std::max(longest, n);
    seen = first + n;
    ASSERT_EQ(outputs.size(), 2u);
    for (std::size_t t = 0; t < 2; ++t) {
      const int width = problem_.tower(t).outputs;
      found[t].insert(found[t].end(), outputs[t], outputs[t] + n * width);
      std::copy_n(d_outputs_[t].begin() + first * width, n * width, d_outputs[t]);
    }
  }

  int seen = 0, longest = 0;
  std::vector<float> found[2];  // outputs

 private:
  const ExecutorProblem& problem_;
  int size_;
  std::vector<float> inputs_, scratch_;
  std::vector<std::vector<float>> d_outputs_;
};

// Samples with a loss give what their passes give one by one, whatever their number; every sample has its loss once,
// in order, in passes of at most pass_size().
inline void CheckLossSamples(const ExecutorMaker& make) {
  const ExecutorProblem problem(make, Activation::kTanh, 0, /*same_inputs=*/true);
  const int pass_size = problem.executor->pass_size();
  const std::unique_ptr<Tape> tape = problem.executor->MakeTape(pass_size),
                              single = problem.executor->MakeTape(1);
  tape->SetParams(problem.params);
  single->SetParams(problem.params);
  for (const int n : {1, 63, 64, 65, 200, pass_size, 2 * pass_size + 5}) {
    SCOPED_TRACE(testing::Message() << n << " samples");
    KnownSamples samples(problem, n), again(problem, n);
    std::vector<float> gradient(problem.network.param_count()), repeated = gradient, sum = gradient;
    tape->AddGradient(samples, gradient);
    EXPECT_EQ(samples.seen, n);
    EXPECT_LE(samples.longest, pass_size);
    tape->AddGradient(again, repeated);
    EXPECT_TRUE(gradient == repeated);
    if (n > make.most_singles) continue;
    KnownSamples one_by_one(problem, n);
    std::vector<float> outputs[2];
    const std::vector<float> d_outputs[] = {problem.OutputGradients(0, n), problem.OutputGradients(1, n)};
    for (int b = 0; b < n; ++b) {
      const float* x = one_by_one.Inputs(b, 1);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::span<const float> one = single->Forward(t, x, 1);
        outputs[t].insert(outputs[t].end(), one.begin(), one.end());
        single->Backward(t, d_outputs[t].data() + b * problem.tower(t).outputs, sum);
      }
    }
    for (std::size_t t = 0; t < 2; ++t) ExpectNear(samples.found[t], outputs[t], 1e-5, "output");
    ExpectNear(gradient, sum, 1e-4, "gradient of parameter");
  }
}

inline void CheckExecutor(const ExecutorMaker& make) {
  CheckFiniteDifferences(make);
  CheckBatchSizes(make);
  CheckTapeReuse(make);
  CheckChangedParams(make);
  CheckTowersApart(make);
  CheckGradientIsAdded(make);
  CheckLossSamples(make);
}

}  // namespace trireme
