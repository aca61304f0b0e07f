#include "trireme/nn/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme {
namespace {

NetworkSpec ActorCritic(Init init = Init::kOrthogonal) {
  return {.towers = {{"policy", 4, {64, 32}, 2, Activation::kTanh, init, 0.01},
                     {"value", 4, {24}, 1, Activation::kRelu, init, 1.0}},
          .free_vectors = {{"log_std", 3, -0.5f}}};
}

std::vector<float> Initial(const NetworkSpec& spec, std::uint64_t seed) {
  const Network network(spec);
  std::vector<float> params(network.param_count(), 77.0f);
  network.Initialise(seed, params);
  return params;
}

const TensorInfo& Tensor(const Network& network, const std::string& name) {
  for (const TensorInfo& tensor : network.layout().tensors()) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return network.layout().tensors()[0];
}

std::vector<float> Values(const Network& network, const std::vector<float>& buffer, const std::string& name) {
  const TensorInfo& tensor = Tensor(network, name);
  return {buffer.begin() + tensor.offset, buffer.begin() + tensor.offset + tensor.size};
}

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

TEST(NetworkTest, LayoutNamesEveryTensorInOrder) {
  const Network network(ActorCritic());
  std::vector<std::string> names;
  for (const TensorInfo& tensor : network.layout().tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"policy/0/weight", "policy/0/bias", "policy/1/weight", "policy/1/bias",
                                      "policy/head/weight", "policy/head/bias", "value/0/weight",
                                      "value/0/bias", "value/head/weight", "value/head/bias", "log_std"}));
  EXPECT_EQ(Tensor(network, "policy/1/weight").shape, (std::vector<int>{64, 32}));    // [inputs, outputs]
  EXPECT_EQ(Tensor(network, "policy/head/weight").shape, (std::vector<int>{2, 32}));  // [outputs, inputs]
  EXPECT_EQ(network.param_count(), network.layout().size());
}

TEST(NetworkTest, SameSeedSameBitsOtherSeedOtherBits) {
  for (const Init init : {Init::kOrthogonal, Init::kKaiming, Init::kXavier}) {
    EXPECT_EQ(Initial(ActorCritic(init), 3), Initial(ActorCritic(init), 3));
    EXPECT_NE(Initial(ActorCritic(init), 3), Initial(ActorCritic(init), 4));
  }
}

TEST(NetworkTest, InitialBiasesAndTheFloatsBetweenTensorsAreZero) {
  const Network network(ActorCritic());
  std::vector<float> params = Initial(ActorCritic(), 1);
  for (const TensorInfo& tensor : network.layout().tensors()) {
    if (tensor.shape.size() == 2 || tensor.name == "log_std") {
      std::fill_n(params.begin() + tensor.offset, tensor.size, 0.0f);
    }
  }
  EXPECT_EQ(params, std::vector<float>(params.size()));
}

TEST(NetworkTest, HeadsStartWithTheirOwnGain) {
  const Network network(ActorCritic());
  const std::vector<float> params = Initial(ActorCritic(), 1);
  // `count` orthogonal vectors of length `gain` have a norm of gain * sqrt(count).
  EXPECT_NEAR(Norm(Values(network, params, "policy/head/weight")), 0.01 * std::sqrt(2.0), 1e-7);
  EXPECT_NEAR(Norm(Values(network, params, "value/head/weight")), 1.0, 1e-6);
  EXPECT_NEAR(Norm(Values(network, params, "policy/0/weight")), std::sqrt(2.0) * 2, 1e-5);
}

TEST(NetworkTest, UniformWeightsStayInsideTheLimitOfTheirLayer) {
  for (const Init init : {Init::kKaiming, Init::kXavier}) {
    const Network network(ActorCritic(init));
    const std::vector<float> params = Initial(ActorCritic(init), 1);
    const auto expect_limit = [&](const std::string& name, double gain, int inputs, int outputs) {
      const double limit = gain * std::sqrt(init == Init::kKaiming ? 3.0 / inputs : 6.0 / (inputs + outputs));
      double largest = 0;
      for (const float w : Values(network, params, name)) largest = std::max<double>(largest, std::fabs(w));
      EXPECT_LE(largest, limit * (1 + 1e-6)) << name;
      EXPECT_GE(largest, limit * 0.8) << name;
    };
    expect_limit("policy/0/weight", 5.0 / 3.0, 4, 64);
    expect_limit("policy/1/weight", 5.0 / 3.0, 64, 32);
    expect_limit("policy/head/weight", 0.01, 32, 2);
    expect_limit("value/0/weight", std::sqrt(2.0), 4, 24);
    expect_limit("value/head/weight", 1.0, 24, 1);
  }
}

TEST(NetworkTest, TensorsOfOneShapeStartDifferently) {
  NetworkSpec spec = ActorCritic(Init::kXavier);
  spec.towers[1] = spec.towers[0];
  spec.towers[1].name = "value";
  const Network network(spec);
  const std::vector<float> params = Initial(spec, 1);
  EXPECT_NE(Values(network, params, "policy/0/weight"), Values(network, params, "value/0/weight"));
}

TEST(NetworkTest, FreeVectors) {
  NetworkSpec spec = ActorCritic();
  spec.free_vectors.push_back({"scale", 2, 4.0f});
  const Network network(spec);
  std::vector<float> params = Initial(spec, 1);
  const std::span<const float> constant(params);
  ASSERT_EQ(network.FreeVector(constant, 0).size(), 3u);
  for (const float value : network.FreeVector(constant, 0)) EXPECT_EQ(value, -0.5f);
  for (const float value : network.FreeVector(constant, 1)) EXPECT_EQ(value, 4.0f);
  network.FreeVector(std::span<float>(params), 1)[1] = 9.0f;
  EXPECT_EQ(Values(network, params, "scale"), (std::vector<float>{4.0f, 9.0f}));
}

TEST(NetworkTest, TowersLieOneAfterTheOther) {
  const Network network(ActorCritic());
  const ParamRange policy = network.TowerRange(0), value = network.TowerRange(1);
  EXPECT_EQ(policy.begin, 0u);
  EXPECT_EQ(policy.end, Tensor(network, "value/0/weight").offset);
  EXPECT_EQ(value.begin, policy.end);
  EXPECT_EQ(value.end, Tensor(network, "log_std").offset);
}

}  // namespace
}  // namespace trireme
