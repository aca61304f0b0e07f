// Random networks against libtorch: the same parameters and inputs must give the same outputs and gradients.
//
// libxsmm's stand-in for a missing BLAS (libxsmmnoblas) must stay hidden from libtorch in this program, or
// libtorch would call it instead of its own; --exclude-libs in CMakeLists.txt sees to that.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/rng.h"
#include "trireme/nn/make_executor.h"

namespace trireme {
namespace {

constexpr int kNetworks = 100;
constexpr double kTolerance = 1e-4;

torch::Tensor ToTensor(const float* values, const std::vector<std::int64_t>& shape) {
  torch::Tensor tensor = torch::empty(shape, torch::kFloat32);
  std::memcpy(tensor.data_ptr<float>(), values, static_cast<std::size_t>(tensor.numel()) * sizeof(float));
  return tensor;
}

// A tensor of a flat buffer; blocked matrices become plain ones.
torch::Tensor ToTensor(std::span<const float> buffer, const TensorInfo& info) {
  const std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
  if (info.shape.size() != 2) return ToTensor(buffer.data() + info.offset, shape);
  std::vector<float> plain;
  for (int r = 0; r < info.shape[0]; ++r) {
    for (int c = 0; c < info.shape[1]; ++c) plain.push_back(buffer[info.offset + ElementIndex(info, r, c)]);
  }
  return ToTensor(plain.data(), shape);
}

torch::Tensor Activate(Activation activation, const torch::Tensor& z) {
  switch (activation) {
    case Activation::kTanh:
      return torch::tanh(z);
    case Activation::kRelu:
      return torch::relu(z);
    case Activation::kElu:
      return torch::elu(z);
    case Activation::kSilu:
      break;
  }
  return torch::silu(z);
}

// A shared torso is one tower with the outputs of all heads; separate torsos are towers of their own.
NetworkSpec RandomSpec(RandomStream& random) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random.NextBelow(static_cast<std::uint32_t>(high - low + 1)));
  };
  const int inputs = between(1, 40);
  const bool shared = between(0, 1) == 0;
  NetworkSpec spec;
  for (int t = 0; t < (shared ? 1 : 2); ++t) {
    TowerSpec tower{.name = t == 0 ? "policy" : "value",
                    .inputs = inputs,
                    .hidden = {},
                    .outputs = t == 0 ? between(1, 20) : 1,
                    .activation = static_cast<Activation>(between(0, 3)),
                    .init = static_cast<Init>(between(0, 2)),
                    .head_gain = 0.5};
    const int depth = between(1, 3);
    for (int l = 0; l < depth; ++l) tower.hidden.push_back(between(0, 3) == 0 ? 128 : between(1, 150));
    spec.towers.push_back(tower);
  }
  return spec;
}

// The largest difference relative to the largest element.
double RelativeDifference(const torch::Tensor& actual, const torch::Tensor& expected) {
  const double scale = expected.abs().max().item<double>();
  return (actual - expected).abs().max().item<double>() / std::max(scale, 1e-6);
}

// The same network in libtorch.
class TorchNetwork {
 public:
  TorchNetwork(const Network& network, std::span<const float> params) : network_(network) {
    for (const TensorInfo& tensor : network.layout().tensors()) {
      params_.push_back(ToTensor(params, tensor).requires_grad_());
    }
  }

  const std::vector<torch::Tensor>& params() const { return params_; }
  // The smallest |z| ahead of a ReLU so far: near zero its slope hangs on rounding.
  double closest_to_kink() const { return closest_to_kink_; }

  // [n, outputs] of each tower.
  std::vector<torch::Tensor> Forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> outputs;
    std::size_t at = 0;
    for (const TowerSpec& tower : network_.spec().towers) {
      torch::Tensor y = x;
      for (std::size_t l = 0; l < tower.hidden.size(); ++l, at += 2) {
        const torch::Tensor z = torch::matmul(y, params_[at]) + params_[at + 1];
        if (tower.activation == Activation::kRelu) {
          closest_to_kink_ = std::min(closest_to_kink_, z.abs().min().item<double>());
        }
        y = Activate(tower.activation, z);
      }
      outputs.push_back(torch::matmul(y, params_[at].t()) + params_[at + 1]);
      at += 2;
    }
    return outputs;
  }

 private:
  const Network& network_;
  std::vector<torch::Tensor> params_;  // in the order of the layout
  double closest_to_kink_ = 1;
};

std::vector<float> Normal(RandomStream& random, std::size_t size) {
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}

class NnTorchTest : public testing::TestWithParam<int> {};

TEST_P(NnTorchTest, ForwardAndBackwardAgree) {
  RandomStream random(1, Purpose::kTest, static_cast<std::uint32_t>(GetParam()), 0);
  const NetworkSpec spec = RandomSpec(random);
  const Network network(spec);
  const int n = 1 + static_cast<int>(random.NextBelow(300));
  const int inputs = spec.towers[0].inputs;
  AlignedBuffer<float> params(network.param_count()), gradient(network.param_count());
  network.Initialise(static_cast<std::uint64_t>(GetParam()), params.span());
  for (const TensorInfo& tensor : network.layout().tensors()) {
    if (tensor.shape.size() == 2) continue;  // biases start at zero, which would hide mistakes with them
    const std::vector<float> bias = Normal(random, tensor.size);
    for (std::size_t i = 0; i < tensor.size; ++i) params[tensor.offset + i] = 0.3f * bias[i];
  }
  std::vector<float> x;
  for (double closest = 0; closest < 3e-6;) {
    x = Normal(random, static_cast<std::size_t>(n) * inputs);
    TorchNetwork probe(network, params.span());
    probe.Forward(ToTensor(x.data(), {n, inputs}));
    closest = probe.closest_to_kink();
  }

  TorchNetwork torch_network(network, params.span());
  const torch::Tensor torch_x = ToTensor(x.data(), {n, inputs}).requires_grad_();
  const std::vector<torch::Tensor> torch_out = torch_network.Forward(torch_x);
  torch::Tensor loss = torch::zeros({}), dx = torch::zeros({n, inputs});
  const std::unique_ptr<Executor> executor = MakeExecutor(network);
  const std::unique_ptr<Tape> tape = executor->MakeTape(n);
  tape->SetParams(params.span());
  for (std::size_t t = 0; t < spec.towers.size(); ++t) {
    const int outputs = spec.towers[t].outputs;
    const float* out = tape->Forward(t, x.data(), n).data();
    EXPECT_LT(RelativeDifference(ToTensor(out, {n, outputs}), torch_out[t]), kTolerance);

    const std::vector<float> dout = Normal(random, static_cast<std::size_t>(n) * outputs);
    loss = loss + (torch_out[t] * ToTensor(dout.data(), {n, outputs})).sum();
    std::vector<float> tower_dx(x.size());
    tape->Backward(t, dout.data(), gradient.span(), tower_dx.data());
    dx += ToTensor(tower_dx.data(), {n, inputs});
  }
  loss.backward();

  for (std::size_t i = 0; i < torch_network.params().size(); ++i) {
    const TensorInfo& tensor = network.layout().tensors()[i];
    const torch::Tensor expected = torch_network.params()[i].grad();
    const torch::Tensor actual = ToTensor(gradient, tensor);
    EXPECT_LT(RelativeDifference(actual, expected), kTolerance) << tensor.name;
  }
  EXPECT_LT(RelativeDifference(dx, torch_x.grad()), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Random, NnTorchTest, testing::Range(0, kNetworks));

}  // namespace
}  // namespace trireme
