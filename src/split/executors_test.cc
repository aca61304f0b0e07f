// Both executors do what every executor must, and compute what a worker computes alone.
#include <gtest/gtest.h>

#include "trireme/nn/make_executor.h"
#include "trireme/split/test_util.h"

namespace trireme {
namespace {

std::string NameOfSplit(const testing::TestParamInfo<ModelSplit>& info) {
  return fmt::format("{}{}", info.param.kind == ModelSplit::Kind::kTensor ? "Tensor" : "Pipeline",
                     info.param.members);
}

class SplitExecutor : public testing::TestWithParam<ModelSplit> {};
INSTANTIATE_TEST_SUITE_P(Splits, SplitExecutor,
                         testing::Values(Tensor(1), Tensor(2), Tensor(4), Pipeline(1), Pipeline(2),
                                         Pipeline(3), Pipeline(4)),
                         NameOfSplit);

TEST_P(SplitExecutor, Conforms) {
  const ModelSplit split = GetParam();
  RunMembers(split.members, [&](PeerCommunicator& group) {
    ExecutorMaker make = [&](const Network& network) {
      return std::make_unique<WholeExecutor>(network, split, group);
    };
    make.most_singles = 70;
    make.hidden_a = {8, 6, 12, 5};
    make.hidden_b = {12, 5, 8, 9};
    CheckExecutor(make);
    if (split.kind != ModelSplit::Kind::kTensor) return;
    make.hidden_a = {8, 6};  // the head after a layer that is summed, and after one that is not
    make.hidden_b = {12};
    CheckExecutor(make);
  });
}

// A loss that is not linear, with statistics and a free vector, as algorithms have them.
class SquaredErrors final : public LossSamples {
 public:
  SquaredErrors(const Network& network, int size, std::span<float> free_gradient)
      : spec_(network.spec()),
        size_(size),
        inputs_(RandomNumbers(static_cast<std::size_t>(size) * spec_.towers[0].inputs, 7)),
        free_gradient_(free_gradient) {}
  int size() const override { return size_; }
  const float* Inputs(int first, int) override {
    return inputs_.data() + static_cast<std::size_t>(first) * spec_.towers[0].inputs;
  }
  void Loss(int first, int n, std::span<const float* const> outputs,
            std::span<float* const> d_outputs) override {
    for (std::size_t t = 0; t < outputs.size(); ++t) {
      const int width = spec_.towers[t].outputs;
      for (int i = 0; i < n * width; ++i) {
        const float error = outputs[t][i] - std::sin(static_cast<float>(first * width + i));
        d_outputs[t][i] = error / static_cast<float>(size_);
        sum += error * error;
        free_gradient_[i % width % free_gradient_.size()] += error;
      }
    }
  }
  float sum = 0;

 private:
  const NetworkSpec& spec_;
  int size_;
  std::vector<float> inputs_;
  std::span<float> free_gradient_;
};

struct Computed {
  std::vector<float> gradient, outputs;
  float sum = 0;
};

constexpr int kActed = 100;

Computed Compute(const Executor& executor, std::span<const float> params, int samples) {
  const Network& network = executor.network();
  const auto tape = executor.MakeTape(std::max(kActed, executor.pass_size()));
  tape->SetParams(params);
  Computed computed{.gradient = std::vector<float>(network.param_count()), .outputs = {}};
  SquaredErrors loss(network, samples, network.FreeVector(std::span<float>(computed.gradient), 0));
  tape->AddGradient(loss, computed.gradient);
  tape->AddGradient(loss, computed.gradient);  // adds
  computed.sum = loss.sum;
  const std::vector<float> x =
      RandomNumbers(static_cast<std::size_t>(kActed) * network.spec().towers[0].inputs, 8);
  for (std::size_t t = 0; t < network.spec().towers.size(); ++t) {
    const std::span<const float> outputs = tape->Forward(t, x.data(), kActed);
    computed.outputs.insert(computed.outputs.end(), outputs.begin(), outputs.end());
  }
  return computed;
}

void ExpectWithin(const std::vector<float>& found, const std::vector<float>& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(double{expected[i]}));
    off = std::max(off, std::fabs(double{found[i]} - double{expected[i]}));
  }
  EXPECT_LE(off, bound * largest);
}

// Of the largest gradient or output; docs/model-parallel.md states this bound.
constexpr double kTensorBound = 1e-5;

TEST_P(SplitExecutor, GradientsAreThoseOfAWorkerThatComputesAlone) {
  const ModelSplit split = GetParam();
  for (const Activation activation : {Activation::kTanh, Activation::kSilu}) {
    const TowerSpec policy{
        .name = "policy", .inputs = 17, .hidden = {96, 128, 64, 80}, .outputs = 5, .activation = activation};
    const TowerSpec value{.name = "value",
                          .inputs = 17,
                          .hidden = {64, 40, 200, 24, 36},
                          .outputs = 1,
                          .activation = activation};
    const Network network({.towers = {policy, value}, .free_vectors = {{"log_std", 5, 0.5f}}});
    std::vector<float> params(network.param_count());
    network.Initialise(3, params);
    const auto alone = MakeExecutor(network);
    for (const int samples : {1, 65, 200, 513}) {
      SCOPED_TRACE(fmt::format("{} samples, activation {}", samples, static_cast<int>(activation)));
      const Computed expected = Compute(*alone, params, samples);
      RunMembers(split.members, [&](PeerCommunicator& group) {
        const Member member(network, split, group);
        const Computed found = Compute(*member.executor, member.Part(params), samples);
        const std::vector<float> gradient = member.Whole(found.gradient);
        if (split.kind == ModelSplit::Kind::kPipeline) {
          EXPECT_TRUE(gradient == expected.gradient);
          EXPECT_TRUE(found.outputs == expected.outputs);
          EXPECT_EQ(found.sum, expected.sum);
        } else {
          ExpectWithin(gradient, expected.gradient, kTensorBound);
          ExpectWithin(found.outputs, expected.outputs, kTensorBound);
        }
        // The same bits on every member, and every time.
        std::vector<float> of_first = found.outputs;
        of_first.push_back(found.sum);
        group.Broadcast(std::span<float>(of_first));
        EXPECT_EQ(of_first.back(), found.sum);
        EXPECT_TRUE(std::equal(found.outputs.begin(), found.outputs.end(), of_first.begin()));
        const Computed again = Compute(*member.executor, member.Part(params), samples);
        EXPECT_TRUE(again.gradient == found.gradient);
      });
    }
  }
}

TEST(PipelineTest, MicroBatchesAreCountedForTheFormula) {
  const Network network({.towers = {{.name = "t", .inputs = 4, .hidden = {8, 8}, .outputs = 2}},
                         .free_vectors = {{"free", 1, 0}}});
  std::vector<float> params(network.param_count());
  network.Initialise(3, params);
  RunMembers(2, [&](PeerCommunicator& group) {
    const Member member(network, Pipeline(2, 4), group);
    Compute(*member.executor, member.Part(params), 4 * 64);
    EXPECT_EQ(member.times.batches, 2u);
    EXPECT_EQ(member.times.micro_batches, 8u);
    EXPECT_DOUBLE_EQ(member.times.expected_bubble(), 1.0 / 5);
    Compute(*member.executor, member.Part(params), 65);  // no more than whole chunks
    EXPECT_EQ(member.times.micro_batches, 12u);
    EXPECT_GT(member.times.total_s, member.times.idle_s);
  });
}

// The one that fails says why, the other that another has failed; nobody waits for ever.
TEST(PipelineTest, AMemberThatFailsReleasesTheOthers) {
  const Network network(
      {.towers = {{.name = "t", .inputs = 4, .hidden = {8, 8}, .outputs = 2}}, .free_vectors = {}});
  for (const ModelSplit& split : {Tensor(2), Pipeline(2)}) {
    ThreadGroup threads(2);
    std::thread other([&] {
      ThreadCommunicator group(threads, 1);
      const Member member(network, split, group);
      group.Abort();
    });
    ThreadCommunicator group(threads, 0);
    const Member member(network, split, group);
    const std::vector<float> params(member.share.network().param_count()), x(4);
    const auto tape = member.executor->MakeTape(1);
    tape->SetParams(params);
    EXPECT_THROW(tape->Forward(0, x.data(), 1), Error);
    other.join();
  }
}

}  // namespace
}  // namespace trireme
