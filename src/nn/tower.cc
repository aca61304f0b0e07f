#include "trireme/nn/tower.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/nn/dense_kernels.h"

namespace trireme {

// Rows start on whole vectors. A stride that is a multiple of 512 bytes would map a column of a chunk onto a
// few cache sets only, so such rows get one line of padding (worth 15 % of the 256-wide products).
int Tower::RowStride(int width) {
  const int stride = (width + 7) / 8 * 8;
  return stride % 128 == 0 ? stride + 16 : stride;
}

Tower::Tower(const TowerSpec& spec, ParamLayout& layout, LayerRange layers) : spec_(spec), layers_(layers) {
  TRIREME_CHECK(spec.inputs > 0 && spec.outputs > 0 && !spec.hidden.empty());
  TRIREME_CHECK(layers.first < layers.end && layers.end <= spec.hidden.size());
  int inputs = layers.first == 0 ? spec.inputs : spec.hidden[layers.first - 1];
  input_stride_ = layers.first == 0 ? inputs : RowStride(inputs);
  for (std::size_t l = layers.first; l < layers.end; ++l) {
    const int outputs = spec.hidden[l];
    TRIREME_CHECK(outputs > 0);
    const std::string name = fmt::format("{}/{}", spec.name, l);
    const std::size_t weight = layout.Add(name + "/weight", {inputs, outputs}, Gemm::BlockRows(outputs));
    hidden_.push_back({inputs, outputs, RowStride(outputs), weight, layout.Add(name + "/bias", {outputs})});
    inputs = outputs;
  }
  if (has_head()) {
    const std::size_t weight = layout.Add(spec.name + "/head/weight", {spec.outputs, inputs});
    head_ = {inputs, spec.outputs, spec.outputs, weight,
             layout.Add(spec.name + "/head/bias", {spec.outputs})};
  }
  end_ = layout.size();
}

namespace {

// Of a chunk of activations of this width, in rows or in panels.
std::size_t WordsFor(int width) {
  return std::max(static_cast<std::size_t>(Tower::kChunk) * (Tower::RowStride(width) / 2),
                  PanelWords(width, Tower::kChunk));
}

}  // namespace

TowerWorkspace::TowerWorkspace(const Tower& tower, int capacity, Precision precision)
    : capacity_(capacity),
      top_stride_(tower.hidden_.back().ld),
      precision_(precision),
      out_(static_cast<std::size_t>(capacity) * tower.head_.outputs) {
  std::size_t widest = 0, words = 0;
  for (const Tower::Layer& layer : tower.hidden_) {
    y_.emplace_back(precision, capacity, Tower::kChunk, layer.ld);
    if (NeedsSlope(tower.spec_.activation)) {
      slope_.emplace_back(precision, capacity, Tower::kChunk, layer.ld);
    }
    // The first layer is given inputs of 32 bits.
    const bool pairs = !pairs_.empty() && precision == Precision::kBf16 &&
                       CurrentProducts() != Products::kFp32 && GainsByPairs(layer.inputs, layer.outputs);
    const std::size_t forward = pairs ? PanelWords(layer.outputs, layer.inputs) : 0;
    const std::size_t back = pairs ? PanelWords(layer.inputs, layer.outputs) : 0;
    pairs_.push_back({AlignedBuffer<std::uint32_t>(forward), AlignedBuffer<std::uint32_t>(back)});
    transposed_.emplace_back(pairs ? 0 : static_cast<std::size_t>(layer.inputs) * layer.outputs);
    if (pairs) words = std::max({words, WordsFor(layer.inputs), WordsFor(layer.outputs)});
    widest = std::max<std::size_t>(widest, layer.ld);
  }
  for (AlignedBuffer<std::uint32_t>& buffer : words_) buffer = AlignedBuffer<std::uint32_t>(words);
  for (AlignedBuffer<float>& dz : dz_) dz = AlignedBuffer<float>(Tower::kChunk * widest);
}

void Tower::MakePlan(int n, TowerWorkspace::ForwardPlan& plan) const {
  plan = {.n = n, .y = {}};
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const Layer& layer = hidden_[l];
    Gemm::Shape y;  // y = W x
    y.m = layer.outputs, y.n = n, y.k = layer.inputs;
    y.blocked_a = true, y.ldb = InputStride(l), y.ldc = layer.ld;
    y.overwrite = true;
    plan.y.emplace_back(y);
  }
}

void Tower::MakePlan(int n, TowerWorkspace::BackwardPlan& plan) const {
  plan = {.n = n, .dw = {}, .dx = {}};
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const Layer& layer = hidden_[l];
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

void Tower::Forward(const float* params, const float* x, int n, TowerWorkspace& workspace, int at) const {
  TRIREME_CHECK(at + n <= workspace.capacity_);
  const bool slopes = !workspace.slope_.empty();
  for (int first = 0; first < n; first += kChunk) {
    const int count = std::min(kChunk, n - first);
    const auto& plan = PlanFor(count, workspace.forward_);
    const float* in = x + static_cast<std::size_t>(first) * input_stride_;
    Rows rows;
    for (std::size_t l = 0; l < hidden_.size(); ++l) {
      const Layer& layer = hidden_[l];
      float* y = workspace.y_[l].Write(at + first);
      float* slope = slopes ? workspace.slope_[l].Write(at + first) : nullptr;
      rows = {count, layer.outputs, layer.ld};
      if (workspace.pairs_[l].used()) {
        MultiplyPairs(l, count, in, workspace, y);
      } else {
        const DenormalsAreZero as_pairs(l > 0 && workspace.precision_ == Precision::kBf16);
        plan.y[l](params + layer.weight, in, y);
      }
      BiasActivate(spec_.activation, rows, params + layer.bias, y, slope);
      workspace.y_[l].Keep(rows, at + first);
      if (slopes) workspace.slope_[l].Keep(rows, at + first);
      in = y;
    }
    if (!has_head()) continue;
    HeadForward(rows, in, head_.outputs, params + head_.weight, params + head_.bias,
                workspace.out_.data() + static_cast<std::size_t>(at + first) * head_.outputs);
  }
}

void Tower::Round(const float* params, float* rounded, TowerWorkspace& workspace) const {
  const auto round = [&](std::size_t begin, std::size_t count) {
    RoundTo(workspace.precision_, params + begin, rounded + begin, count);
  };
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const Layer& layer = hidden_[l];
    if (workspace.pairs_[l].used()) {
      PackWeights(params + layer.weight, layer.inputs, layer.outputs, workspace.pairs_[l].weights.data());
    } else {
      round(layer.weight, static_cast<std::size_t>(layer.inputs) * layer.outputs);
    }
    round(layer.bias, layer.outputs);
  }
  if (!has_head()) return;
  round(head_.weight, static_cast<std::size_t>(head_.inputs) * head_.outputs);
  round(head_.bias, head_.outputs);
}

void Tower::MultiplyPairs(std::size_t l, int n, const float* in, TowerWorkspace& workspace, float* y) const {
  const Layer& layer = hidden_[l];
  const int ld = InputStride(l);
  PackRows({n, layer.inputs, ld}, in, workspace.words_[0].data(), ld / 2);
  const PairProduct product{
      .m = layer.outputs, .n = n, .k = layer.inputs, .b_words = ld / 2, .ldc = layer.ld, .overwrite = true};
  product(workspace.pairs_[l].weights.data(), workspace.words_[0].data(), y);
}

void Tower::MultiplyPairsBack(std::size_t l, int n, const float* in, const float* dz,
                              TowerWorkspace& workspace, float* dw, float* dx) const {
  const Layer& layer = hidden_[l];
  const Rows of_in{n, layer.inputs, InputStride(l)}, of_dz{n, layer.outputs, layer.ld};
  std::uint32_t *const first = workspace.words_[0].data(), *const second = workspace.words_[1].data();
  PackSamples(PanelsOf::kA, of_dz, dz, first);
  PackSamples(PanelsOf::kB, of_in, in, second);
  PairProduct{.m = layer.outputs, .n = layer.inputs, .k = n, .blocked_c = true}(first, second, dw);
  PackRows(of_dz, dz, first, layer.ld / 2);
  const PairProduct back{.m = layer.inputs,
                         .n = n,
                         .k = layer.outputs,
                         .b_words = layer.ld / 2,
                         .ldc = of_in.ld,
                         .overwrite = true};
  back(workspace.pairs_[l].transposed.data(), first, dx);
}

void Tower::PrepareBackward(const float* params, TowerWorkspace& workspace) const {
  for (std::size_t l = 0; l < hidden_.size(); ++l) {
    const Layer& layer = hidden_[l];
    if (TowerWorkspace::Pairs& pairs = workspace.pairs_[l]; pairs.used()) {
      TransposePanels(pairs.weights.data(), layer.outputs, layer.inputs, pairs.transposed.data());
      continue;
    }
    TransposeBlocked(params + layer.weight, layer.inputs, layer.outputs, workspace.transposed_[l].data());
  }
}

void Tower::Backward(const float* params, const float* x, const float* dout, int n, TowerWorkspace& workspace,
                     float* gradient, float* dx, int at) const {
  TRIREME_CHECK(at + n <= workspace.capacity_);
  for (int first = 0; first < n; first += kChunk) {
    const int count = std::min(kChunk, n - first);
    const auto& plan = PlanFor(count, workspace.backward_);
    // What Forward has left at a layer.
    struct Kept {
      Rows rows;
      const float *y, *slope;
    };
    const auto kept = [&](std::size_t l) -> Kept {
      const Rows rows{count, hidden_[l].outputs, hidden_[l].ld};
      return {rows, workspace.y_[l].Read(rows, at + first),
              workspace.slope_.empty() ? nullptr : workspace.slope_[l].Read(rows, at + first)};
    };

    std::size_t l = hidden_.size() - 1;
    float* dz = workspace.dz_[0].data();
    float* dz_below = workspace.dz_[1].data();
    const Kept top = kept(l);
    if (has_head()) {
      HeadBackward(spec_.activation, top.rows, top.y, top.slope, head_.outputs, params + head_.weight,
                   dout + static_cast<std::size_t>(first) * head_.outputs, gradient + head_.weight,
                   gradient + head_.bias, dz, gradient + hidden_[l].bias);
    } else {
      const std::size_t floats = static_cast<std::size_t>(count) * top.rows.ld;
      std::copy_n(dout + static_cast<std::size_t>(first) * top.rows.ld, floats, dz);
      ActivationBackward(spec_.activation, top.rows, top.y, top.slope, dz, gradient + hidden_[l].bias);
    }
    workspace.RoundGradient(top.rows, dz);
    for (; l > 0; --l) {
      const Kept below = kept(l - 1);
      if (workspace.pairs_[l].used()) {
        MultiplyPairsBack(l, count, below.y, dz, workspace, gradient + hidden_[l].weight, dz_below);
      } else {
        const DenormalsAreZero as_pairs(workspace.precision_ == Precision::kBf16);
        plan.dw[l](dz, below.y, gradient + hidden_[l].weight);
        plan.dx[l](workspace.transposed_[l].data(), dz, dz_below);
      }
      ActivationBackward(spec_.activation, below.rows, below.y, below.slope, dz_below,
                         gradient + hidden_[l - 1].bias);
      workspace.RoundGradient(below.rows, dz_below);
      std::swap(dz, dz_below);
    }
    const std::size_t inputs_at = static_cast<std::size_t>(first) * input_stride_;
    plan.dw[0](dz, x + inputs_at, gradient + hidden_[0].weight);
    if (dx != nullptr) plan.dx[0](workspace.transposed_[0].data(), dz, dx + inputs_at);
  }
}

}  // namespace trireme
