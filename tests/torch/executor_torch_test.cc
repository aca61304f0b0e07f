// The executor by libtorch: what every executor must do, and the results of the fused one. Through the plug-in, as the
// program uses it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/nn/executor_conformance.h"
#include "trireme/nn/make_executor.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

// The processor, unless TRIREME_TEST_DEVICE names another device.
Device TorchDevice() {
  const char* chosen = std::getenv("TRIREME_TEST_DEVICE");
  return ParseDevices(chosen == nullptr ? "cpu" : chosen)[0];
}

std::unique_ptr<Executor> MakeTorch(const Network& network) { return MakeExecutor(network, {TorchDevice()}); }

TEST(TorchExecutorTest, Conforms) { CheckExecutor(MakeTorch); }

// Wide layers are stored in blocks of columns, and padding lies between tensors.
NetworkSpec WideSpec(Activation activation) {
  return {.towers =
              {{.name = "policy", .inputs = 17, .hidden = {200, 131}, .outputs = 5, .activation = activation},
               {.name = "value", .inputs = 17, .hidden = {33}, .outputs = 1, .activation = activation}},
          .free_vectors = {{"log_std", 5, 0.5f}}};
}

// The largest difference relative to the largest element.
double RelativeDifference(std::span<const float> found, std::span<const float> expected) {
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::fabs(double{found[i]} - expected[i]));
    scale = std::max(scale, std::fabs(double{expected[i]}));
  }
  return difference / scale;
}

TEST(TorchExecutorTest, WideTowersAreThoseOfTheDefault) {
  for (const auto& [name, activation] : kActivationNames) {
    SCOPED_TRACE(name);
    const Network network(WideSpec(activation));
    const bool blocked = std::ranges::any_of(network.layout().tensors(), [](const TensorInfo& tensor) {
      return tensor.block < tensor.shape.back();
    });
    ASSERT_TRUE(blocked) << "no tensor is stored in blocks: the test has lost its point";
    std::vector<float> params(network.param_count());
    network.Initialise(3, params);
    constexpr int kSamples = 100;
    const std::vector<float> x = RandomNumbers(kSamples * 17, 1), d = RandomNumbers(kSamples * 5, 2);
    std::vector<float> outputs[2], gradient[2], dx[2];
    for (const bool torch : {false, true}) {
      const std::unique_ptr<Executor> executor = MakeExecutor(network, {torch ? TorchDevice() : Device{}});
      const std::unique_ptr<Tape> tape = executor->MakeTape(kSamples);
      tape->SetParams(params);
      gradient[torch].resize(params.size());
      for (std::size_t t = 0; t < 2; ++t) {
        const std::span<const float> y = tape->Forward(t, x.data(), kSamples);
        outputs[torch].insert(outputs[torch].end(), y.begin(), y.end());
        std::vector<float> d_x(x.size());
        tape->Backward(t, d.data(), gradient[torch], d_x.data());
        dx[torch].insert(dx[torch].end(), d_x.begin(), d_x.end());
      }
    }
    EXPECT_LT(RelativeDifference(outputs[1], outputs[0]), 1e-5);
    EXPECT_LT(RelativeDifference(gradient[1], gradient[0]), 1e-5);
    EXPECT_LT(RelativeDifference(dx[1], dx[0]), 1e-5);
  }
}

// Workers are threads that compute at the same time, each with a tape of its own.
TEST(TorchExecutorTest, ThreadsGetTheBitsOfOne) {
  const Network network(WideSpec(Activation::kTanh));
  std::vector<float> params(network.param_count());
  network.Initialise(3, params);
  const std::unique_ptr<Executor> executor = MakeTorch(network);
  constexpr int kThreads = 4, kRounds = 20, kSamples = 64;
  const auto gradient_of = [&](std::uint32_t stream) {
    const std::vector<float> x = RandomNumbers(kSamples * 17, stream);
    const std::unique_ptr<Tape> tape = executor->MakeTape(kSamples);
    std::vector<float> gradient(params.size());
    for (int round = 0; round < kRounds; ++round) {
      tape->SetParams(params);
      const std::span<const float> y = tape->Forward(0, x.data(), kSamples);
      tape->Backward(0, std::vector<float>(y.begin(), y.end()).data(), gradient);
    }
    return gradient;
  };
  std::vector<std::vector<float>> found(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { found[i] = gradient_of(10 + i); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(found[i], gradient_of(10 + i)) << i;
}

TEST(TorchExecutorTest, ThePluginSaysWhatItIs) {
  const TorchFacts& facts = LoadTorch().facts();
  EXPECT_EQ(facts.version, facts.built_against);
  EXPECT_EQ(std::ranges::count(facts.version, '.'), 2) << facts.version;
}

}  // namespace
}  // namespace trireme
