#include "nn/tower.h"

#include <algorithm>

#include "base/error.h"
#include "nn/dense_kernels.h"

namespace trireme {
namespace {

// Rows start on whole vectors. A stride that is a multiple of 512 bytes would map a column of a chunk onto a
// few cache sets only, so such rows get one line of padding (worth 15 % of the 256-wide products).
int RowStride(int width) {
  const int stride = (width + 7) / 8 * 8;
  return stride % 128 == 0 ? stride + 16 : stride;
}

}  // namespace

Tower::Tower(const TowerSpec& spec, ParamLayout& layout) : spec_(spec) {
  CHECK(spec.inputs > 0 && spec.outputs > 0 && !spec.hidden.empty());
  int inputs = spec.inputs;
  for (std::size_t l = 0; l < spec.hidden.size(); ++l) {
    const int outputs = spec.hidden[l];
    CHECK(outputs > 0);
    const std::string name = fmt::format("{}/{}", spec.name, l);
    const std::size_t weight = layout.Add(name + "/weight", {inputs, outputs});
    hidden_.push_back({inputs, outputs, RowStride(outputs), weight, layout.Add(name + "/bias", {outputs})});
    inputs = outputs;
  }
  const std::size_t weight = layout.Add(spec.name + "/head/weight", {spec.outputs, inputs});
  head_ = {inputs, spec.outputs, spec.outputs, weight, layout.Add(spec.name + "/head/bias", {spec.outputs})};
}

TowerWorkspace::TowerWorkspace(const Tower& tower, int capacity)
    : capacity_(capacity), out_(static_cast<std::size_t>(capacity) * tower.head_.outputs) {
  std::size_t widest = 0;
  for (const Tower::Layer& layer : tower.hidden_) {
    const std::size_t floats = static_cast<std::size_t>(capacity) * layer.ld;
    y_.emplace_back(floats);
    slope_.emplace_back(NeedsSlope(tower.spec_.activation) ? floats : 0);
    transposed_.emplace_back(static_cast<std::size_t>(layer.inputs) * layer.outputs);
    widest = std::max<std::size_t>(widest, layer.ld);
  }
  for (AlignedBuffer<float>& dz : dz_) dz = AlignedBuffer<float>(Tower::kBackwardChunk * widest);
}

void Tower::MakePlan(int n, TowerWorkspace::ForwardPlan& plan) const {
  plan = {.n = n, .y = {}};
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const auto& [inputs, outputs, ld, weight, bias] = hidden_[l];
    // y = W x
    plan.y.emplace_back(Gemm::Shape{.m = outputs,
                                    .n = n,
                                    .k = inputs,
                                    .lda = outputs,
                                    .ldb = InputStride(l),
                                    .ldc = ld,
                                    .transpose_b = false,
                                    .overwrite = true});
  }
}

void Tower::MakePlan(int n, TowerWorkspace::BackwardPlan& plan) const {
  plan = {.n = n, .dw = {}, .dx = {}};
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const auto& [inputs, outputs, ld, weight, bias] = hidden_[l];
    // dW += dz x^T
    plan.dw.emplace_back(Gemm::Shape{.m = outputs,
                                     .n = inputs,
                                     .k = n,
                                     .lda = ld,
                                     .ldb = InputStride(l),
                                     .ldc = outputs,
                                     .transpose_b = true,
                                     .overwrite = false});
    // dx = W^T dz
    plan.dx.emplace_back(Gemm::Shape{.m = inputs,
                                     .n = n,
                                     .k = outputs,
                                     .lda = inputs,
                                     .ldb = ld,
                                     .ldc = InputStride(l),
                                     .transpose_b = false,
                                     .overwrite = true});
  }
}

void Tower::Forward(const float* params, const float* x, int n, TowerWorkspace& workspace) const {
  CHECK(n <= workspace.capacity_);
  for (int first = 0; first < n; first += kForwardChunk) {
    const int count = std::min(kForwardChunk, n - first);
    const auto& plan = PlanFor(count, kForwardChunk, workspace.forward_);
    const float* in = x + static_cast<std::size_t>(first) * spec_.inputs;
    Rows rows;
    for (std::size_t l = 0; l < hidden_.size(); ++l) {
      const Layer& layer = hidden_[l];
      const std::size_t at = static_cast<std::size_t>(first) * layer.ld;
      float* y = workspace.y_[l].data() + at;
      float* slope = workspace.slope_[l].size() > 0 ? workspace.slope_[l].data() + at : nullptr;
      rows = {count, layer.outputs, layer.ld};
      plan.y[l](params + layer.weight, in, y);
      BiasActivate(spec_.activation, rows, params + layer.bias, y, slope);
      in = y;
    }
    HeadForward(rows, in, head_.outputs, params + head_.weight, params + head_.bias,
                workspace.out_.data() + static_cast<std::size_t>(first) * head_.outputs);
  }
}

void Tower::PrepareBackward(const float* params, TowerWorkspace& workspace) const {
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    Transpose(params + hidden_[l].weight, hidden_[l].inputs, hidden_[l].outputs,
              workspace.transposed_[l].data());
  }
}

void Tower::Backward(const float* params, const float* x, const float* dout, int n, TowerWorkspace& workspace,
                     float* gradient, float* dx) const {
  CHECK(n <= workspace.capacity_);
  for (int first = 0; first < n; first += kBackwardChunk) {
    const int count = std::min(kBackwardChunk, n - first);
    const auto& plan = PlanFor(count, kBackwardChunk, workspace.backward_);
    const auto y_of = [&](std::size_t l) {
      return workspace.y_[l].data() + static_cast<std::size_t>(first) * hidden_[l].ld;
    };
    const auto slope_of = [&](std::size_t l) {
      return workspace.slope_[l].size() > 0
                 ? workspace.slope_[l].data() + static_cast<std::size_t>(first) * hidden_[l].ld
                 : nullptr;
    };

    std::size_t l = hidden_.size() - 1;
    float* dz = workspace.dz_[0].data();
    float* dz_below = workspace.dz_[1].data();
    HeadBackward(spec_.activation, {count, hidden_[l].outputs, hidden_[l].ld}, y_of(l), slope_of(l),
                 head_.outputs, params + head_.weight, dout + static_cast<std::size_t>(first) * head_.outputs,
                 gradient + head_.weight, gradient + head_.bias, dz, gradient + hidden_[l].bias);
    for (; l > 0; --l) {
      const Layer& below = hidden_[l - 1];
      plan.dw[l](dz, y_of(l - 1), gradient + hidden_[l].weight);
      plan.dx[l](workspace.transposed_[l].data(), dz, dz_below);
      ActivationBackward(spec_.activation, {count, below.outputs, below.ld}, y_of(l - 1), slope_of(l - 1),
                         dz_below, gradient + below.bias);
      std::swap(dz, dz_below);
    }
    const float* x_chunk = x + static_cast<std::size_t>(first) * spec_.inputs;
    plan.dw[0](dz, x_chunk, gradient + hidden_[0].weight);
    if (dx != nullptr) {
      plan.dx[0](workspace.transposed_[0].data(), dz, dx + static_cast<std::size_t>(first) * spec_.inputs);
    }
  }
}

}  // namespace trireme
