// Our optimizers against libtorch's: the same start, gradients and settings must give the same parameters.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "trireme/base/rng.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/optimizer.h"

namespace trireme {
namespace {

constexpr int kSteps = 100;

std::vector<float> Normal(std::size_t size, std::uint64_t step, double scale) {
  RandomStream stream(1, Purpose::kTest, 0, step);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(scale * stream.NextNormal());
  return values;
}

torch::Tensor ToTensor(const std::vector<float>& values) {
  torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(values.size())});
  std::memcpy(tensor.data_ptr<float>(), values.data(), values.size() * sizeof(float));
  return tensor;
}

struct Case {
  std::string label;
  OptimizerSettings settings;
  double learning_rate;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.label; }

std::unique_ptr<torch::optim::Optimizer> MakeTorch(const Case& c, const torch::Tensor& params) {
  namespace optim = torch::optim;
  const OptimizerSettings& s = c.settings;
  const std::vector<torch::Tensor> list = {params};
  const std::tuple betas(s.beta1, s.beta2);
  switch (s.kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<optim::SGD>(list,
                                          optim::SGDOptions(c.learning_rate).weight_decay(s.weight_decay));
    case OptimizerKind::kMomentum:
      return std::make_unique<optim::SGD>(
          list, optim::SGDOptions(c.learning_rate).momentum(s.momentum).weight_decay(s.weight_decay));
    case OptimizerKind::kAdagrad:
      return std::make_unique<optim::Adagrad>(
          list, optim::AdagradOptions(c.learning_rate).eps(s.eps).weight_decay(s.weight_decay));
    case OptimizerKind::kRmsprop:
      return std::make_unique<optim::RMSprop>(
          list,
          optim::RMSpropOptions(c.learning_rate).alpha(s.rms_alpha).eps(s.eps).weight_decay(s.weight_decay));
    case OptimizerKind::kAdam:
      return std::make_unique<optim::Adam>(
          list, optim::AdamOptions(c.learning_rate).betas(betas).eps(s.eps).weight_decay(s.weight_decay));
    case OptimizerKind::kAdamw:
      return std::make_unique<optim::AdamW>(
          list, optim::AdamWOptions(c.learning_rate).betas(betas).eps(s.eps).weight_decay(s.weight_decay));
  }
  return nullptr;
}

class OptimTorchTest : public testing::TestWithParam<Case> {};

TEST_P(OptimTorchTest, HundredStepsAgree) {
  const Case& c = GetParam();
  for (const std::size_t size : {1u, 7u, 33u, 1003u}) {
    std::vector<float> ours = Normal(size, 1'000'000 + size, 1.0);
    torch::Tensor theirs = ToTensor(ours).set_requires_grad(true);
    const auto torch_optimizer = MakeTorch(c, theirs);
    const auto optimizer = std::make_unique<Optimizer>(c.settings, size);
    for (int step = 0; step < kSteps; ++step) {
      // Gradients of changing magnitude exercise the moments.
      const std::vector<float> gradient = Normal(size, step, std::pow(10.0, step % 5 - 3));
      theirs.mutable_grad() = ToTensor(gradient);
      torch_optimizer->step();
      optimizer->Step(ours, gradient, static_cast<float>(c.learning_rate));
    }
    const float* expected = theirs.data_ptr<float>();
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(ours[i], expected[i], 1e-5 * std::max(1.0f, std::abs(expected[i])))
          << "element " << i << " of " << size;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [name, kind] : kOptimizerNames) {
    OptimizerSettings plain{.kind = kind};
    cases.push_back({std::string(name), plain, 1e-3});
    OptimizerSettings decay = plain;
    decay.weight_decay = 0.05;
    cases.push_back({std::string(name) + "_decay", decay, 1e-2});
    OptimizerSettings other = plain;
    other.momentum = 0.5;
    other.beta1 = 0.8;
    other.beta2 = 0.95;
    other.rms_alpha = 0.9;
    other.eps = 1e-2;
    other.weight_decay = 1e-3;
    cases.push_back({std::string(name) + "_other", other, 3e-3});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, OptimTorchTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.label; });

TEST(ClipTorchTest, AgreesWithClipGradNorm) {
  for (const double max_norm : {0.5, 1e3}) {
    std::vector<float> ours = Normal(1003, 5, 1.0);
    torch::Tensor theirs = torch::zeros({1003}).set_requires_grad(true);
    theirs.mutable_grad() = ToTensor(ours);
    const double expected_norm =
        torch::nn::utils::clip_grad_norm_(std::vector<torch::Tensor>{theirs}, max_norm);
    EXPECT_NEAR(ClipByGlobalNorm(ours, max_norm), expected_norm, 1e-5 * expected_norm);
    const float* expected = theirs.grad().data_ptr<float>();
    for (std::size_t i = 0; i < ours.size(); ++i)
      ASSERT_NEAR(ours[i], expected[i], 1e-6 * std::max(1.0f, std::abs(expected[i])));
  }
}

}  // namespace
}  // namespace trireme
