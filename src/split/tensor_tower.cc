#include "trireme/split/tensor_tower.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/nn/dense_kernels.h"
#include "trireme/nn/tower.h"

namespace trireme {
namespace {

// Calls step(first, count) for n samples in chunks.
template <class Step>
void InChunks(int n, int chunk, Step&& step) {
  for (int first = 0; first < n; first += chunk)
    step(static_cast<std::size_t>(first), std::min(chunk, n - first));
}

}  // namespace

TensorTower::TensorTower(const TowerSpec& spec, int members, ParamLayout& layout) : spec_(spec) {
  TRIREME_CHECK(spec.inputs > 0 && spec.outputs > 0 && !spec.hidden.empty() && members > 0);
  int inputs = spec.inputs;  // that a member holds weights of
  for (std::size_t l = 0; l < spec.hidden.size(); ++l) {
    const bool summed = l % 2 == 1;
    const int width = spec.hidden[l];
    if (!summed && width % members != 0) {
      Fail(
          "tensor={} does not divide hidden layer {} of tower {}, which has {} units: choose a number of "
          "workers that "
          "divides the first, third, ... hidden layers, or change hidden",
          members, l, spec.name, width);
    }
    const int outputs = summed ? width : width / members;
    const std::string name = fmt::format("{}/{}", spec.name, l);
    const std::size_t weight = layout.Add(name + "/weight", {inputs, outputs}, Gemm::BlockRows(outputs));
    layers_.push_back(
        {inputs, outputs, summed, Tower::RowStride(outputs), weight, layout.Add(name + "/bias", {outputs})});
    inputs = outputs;
  }
  const std::size_t weight = layout.Add(spec.name + "/head/weight", {spec.outputs, inputs});
  const bool summed = !layers_.back().summed;
  head_ = {inputs,       spec.outputs, summed,
           spec.outputs, weight,       layout.Add(spec.name + "/head/bias", {spec.outputs})};
  end_ = layout.size();
}

TensorWorkspace::TensorWorkspace(const TensorTower& tower, int capacity)
    : capacity_(capacity),
      out_(static_cast<std::size_t>(capacity) * tower.head_.outputs),
      no_bias_(tower.head_.outputs) {
  std::size_t widest = 0;
  for (const TensorTower::Layer& layer : tower.layers_) {
    const std::size_t floats = static_cast<std::size_t>(capacity) * layer.ld;
    y_.emplace_back(floats);
    slope_.emplace_back(NeedsSlope(tower.spec_.activation) ? floats : 0);
    transposed_.emplace_back(static_cast<std::size_t>(layer.inputs) * layer.outputs);
    widest = std::max<std::size_t>(widest, layer.ld);
  }
  for (AlignedBuffer<float>& dz : dz_) dz = AlignedBuffer<float>(static_cast<std::size_t>(capacity) * widest);
}

void TensorTower::MakePlan(int n, TensorWorkspace::Plan& plan) const {
  plan = {.n = n, .y = {}, .dw = {}, .dx = {}};
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    Gemm::Shape y;  // y = W x
    y.m = layer.outputs, y.n = n, y.k = layer.inputs;
    y.blocked_a = true, y.ldb = InputStride(l), y.ldc = layer.ld;
    y.overwrite = true;
    plan.y.emplace_back(y);
    Gemm::Shape dw;  // dW += dz x^T
    dw.m = layer.outputs, dw.n = layer.inputs, dw.k = n;
    dw.lda = layer.ld, dw.ldb = InputStride(l), dw.blocked_c = true;
    dw.transpose_b = true;
    plan.dw.emplace_back(dw);
    Gemm::Shape dx;  // dx = W^T dz
    dx.m = layer.inputs, dx.n = n, dx.k = layer.outputs;
    dx.blocked_a = true, dx.ldb = layer.ld, dx.ldc = InputStride(l);
    dx.overwrite = true;
    plan.dx.emplace_back(dx);
  }
}

const TensorWorkspace::Plan& TensorTower::PlanFor(int n, TensorWorkspace& workspace) const {
  TensorWorkspace::Plan& plan = n == kChunk ? workspace.usual_ : workspace.other_;
  if (plan.n != n) MakePlan(n, plan);
  return plan;
}

// Layer by layer, so that there is one sum for all samples.
void TensorTower::Forward(const float* params, const float* x, int n, Communicator& group,
                          TensorWorkspace& workspace) const {
  TRIREME_CHECK(n <= workspace.capacity_);
  const std::size_t rows = static_cast<std::size_t>(n);
  const float* in = x;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    float* y = workspace.y_[l].data();
    InChunks(n, kChunk, [&](std::size_t first, int count) {
      PlanFor(count, workspace)
          .y[l](params + layer.weight, in + first * InputStride(l), y + first * layer.ld);
    });
    if (layer.summed) group.AllReduceSum(std::span(y, rows * layer.ld));
    float* slope = workspace.slope_[l].size() > 0 ? workspace.slope_[l].data() : nullptr;
    BiasActivate(spec_.activation, {n, layer.outputs, layer.ld}, params + layer.bias, y, slope);
    in = y;
  }
  // A sum of the members' products must have the bias once: the first member adds it.
  const Layer& top = layers_.back();
  const float* bias = head_.summed && group.rank() > 0 ? workspace.no_bias_.data() : params + head_.bias;
  InChunks(n, Tower::kChunk, [&](std::size_t first, int count) {
    HeadForward({count, top.outputs, top.ld}, in + first * top.ld, head_.outputs, params + head_.weight, bias,
                workspace.out_.data() + first * head_.outputs);
  });
  if (head_.summed) group.AllReduceSum(workspace.out_.span().first(rows * head_.outputs));
}

void TensorTower::PrepareBackward(const float* params, TensorWorkspace& workspace) const {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    TransposeBlocked(params + layers_[l].weight, layers_[l].inputs, layers_[l].outputs,
                     workspace.transposed_[l].data());
  }
}

void TensorTower::Backward(const float* params, const float* x, const float* dout, int n, Communicator& group,
                           TensorWorkspace& workspace, float* gradient, float* dx) const {
  TRIREME_CHECK(n <= workspace.capacity_);
  const std::size_t rows = static_cast<std::size_t>(n);
  const auto slope_of = [&](std::size_t l, std::size_t first) {
    return workspace.slope_[l].size() > 0 ? workspace.slope_[l].data() + first * layers_[l].ld : nullptr;
  };
  const auto products = [&](std::size_t l, const float* in, const float* dz, float* d_in) {
    InChunks(n, kChunk, [&](std::size_t first, int count) {
      const TensorWorkspace::Plan& plan = PlanFor(count, workspace);
      plan.dw[l](dz + first * layers_[l].ld, in + first * InputStride(l), gradient + layers_[l].weight);
      if (d_in == nullptr) return;
      plan.dx[l](workspace.transposed_[l].data(), dz + first * layers_[l].ld, d_in + first * InputStride(l));
    });
    // Each member knows the gradient of its own units, which is a part of that of their common inputs.
    if (d_in != nullptr && !layers_[l].summed) group.AllReduceSum(std::span(d_in, rows * InputStride(l)));
  };

  std::size_t l = layers_.size() - 1;
  float* dz = workspace.dz_[0].data();
  float* dz_below = workspace.dz_[1].data();
  InChunks(n, Tower::kChunk, [&](std::size_t first, int count) {
    HeadBackward(spec_.activation, {count, layers_[l].outputs, layers_[l].ld},
                 workspace.y_[l].data() + first * layers_[l].ld, slope_of(l, first), head_.outputs,
                 params + head_.weight, dout + first * head_.outputs, gradient + head_.weight,
                 gradient + head_.bias, dz + first * layers_[l].ld, gradient + layers_[l].bias);
  });
  for (; l > 0; --l) {
    const Layer& below = layers_[l - 1];
    const float* y = workspace.y_[l - 1].data();
    products(l, y, dz, dz_below);
    ActivationBackward(spec_.activation, {n, below.outputs, below.ld}, y, slope_of(l - 1, 0), dz_below,
                       gradient + below.bias);
    std::swap(dz, dz_below);
  }
  products(0, x, dz, dx);
}

}  // namespace trireme
