#include "trireme/nn/torch/executor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/nn/passes.h"
#include "trireme/nn/precision.h"

namespace trireme {
namespace {

// What towers are computed in; parameters, inputs, outputs and gradients are floats on the host in any case.
at::ScalarType ElementOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      break;
    case Precision::kBf16:
      return at::kBFloat16;
    case Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

// Each worker is a thread and there are as many as processors, so libtorch and the BLAS behind it start none of their
// own. That also fixes the order of additions. Devices multiply what they are given, and not only its first bits.
void OneThreadInFull() {
  at::globalContext().setAllowTF32CuBLAS(false);
  at::set_num_threads(1);
  using SetThreads = void (*)(int);
  if (void* openblas = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<SetThreads>(openblas)(1);
  }
}

at::Device PlaceOf(const Device& device) {
  return device.kind == Device::Kind::kCuda
             ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.index))
             : at::Device(at::kCPU);
}

// Calls `act`; what libtorch throws becomes an Error.
template <class Act>
auto OnDevice(const at::Device& place, Act&& act) {
  try {
    return act();
  } catch (const c10::Error& error) {
    std::string reason = error.what_without_backtrace();
    reason.resize(std::min(reason.find('\n'), reason.size()));
    Fail("libtorch on {}: {}", place.str(), reason);
  }
}

at::Tensor OnHost(const float* values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(values), shape, at::kFloat);
}

at::Tensor Activate(Activation activation, const at::Tensor& z) {
  switch (activation) {
    case Activation::kTanh:
      return at::tanh(z);
    case Activation::kRelu:
      return at::relu(z);
    case Activation::kElu:
      return at::elu(z);
    case Activation::kSilu:
      break;
  }
  return at::silu(z);
}

// Calls visit(part, first) for the columns of a matrix that lie together in the flat buffer: `part` is a view of that
// buffer, [rows, columns of the block], and `first` its first column.
template <class Visit>
void ForBlocks(const at::Tensor& flat, std::int64_t offset, const TensorInfo& matrix, Visit&& visit) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  for (std::int64_t first = 0; first < columns; first += matrix.block) {
    const std::int64_t width = std::min<std::int64_t>(matrix.block, columns - first);
    visit(flat.narrow(0, offset + first * rows, rows * width).view({rows, width}), first);
  }
}

// One tower: where its tensors lie, and what is on the device.
class Track {
 public:
  Track(const Network& network, std::size_t tower, at::Device place, at::ScalarType element)
      : spec_(network.spec().towers[tower]),
        range_(network.TowerRange(tower)),
        place_(place),
        element_(element) {
    for (const TensorInfo& tensor : network.layout().tensors()) {
      if (tensor.offset >= range_.begin && tensor.offset < range_.end) tensors_.push_back(tensor);
    }
    TRIREME_CHECK(tensors_.size() == 2 * (spec_.hidden.size() + 1));
    gradient_ = at::zeros({Size()}, at::TensorOptions(place_).dtype(at::kFloat));
  }

  // flat: all parameters, on the device.
  void SetParams(const at::Tensor& flat) {
    leaves_.clear();
    for (const TensorInfo& tensor : tensors_) {
      leaves_.push_back(TensorOf(flat, tensor).to(element_).detach().requires_grad_());
    }
    outputs_.reset();
  }

  std::span<const float> Forward(const float* x, int n) {
    x_ = OnHost(x, {n, spec_.inputs}).to(place_, element_).requires_grad_();
    at::Tensor y = x_;
    std::size_t at = 0;  // hidden weights are [inputs, outputs], the last layer's [outputs, inputs]
    for (; at < 2 * spec_.hidden.size(); at += 2) {
      y = Activate(spec_.activation, at::addmm(leaves_[at + 1], y, leaves_[at]));
    }
    outputs_ = at::addmm(leaves_[at + 1], y, leaves_[at].t());
    on_host_ = outputs_.detach().to(at::kCPU, at::kFloat).contiguous();
    return {on_host_.data_ptr<float>(), static_cast<std::size_t>(on_host_.numel())};
  }

  // The way back is `scale` times as large, which is a power of two.
  void Backward(const float* d_outputs, std::span<float> gradient, float* d_x, float scale) {
    TRIREME_CHECK(outputs_.defined());
    std::vector<at::Tensor> inputs = leaves_;
    if (d_x != nullptr) inputs.push_back(x_);
    at::Tensor d = OnHost(d_outputs, outputs_.sizes()).to(place_);
    if (scale != 1) d = d * scale;
    const std::vector<at::Tensor> slopes =
        torch::autograd::grad({outputs_}, inputs, {d.to(element_)}, /*retain_graph=*/true);
    for (std::size_t i = 0; i < tensors_.size(); ++i) Keep(slopes[i], tensors_[i]);
    OnHost(gradient.data() + range_.begin, {Size()}).add_(gradient_.to(at::kCPU), 1 / scale);
    if (d_x != nullptr) OnHost(d_x, x_.sizes()).copy_(slopes.back()).mul_(1 / scale);
  }

 private:
  std::int64_t Size() const { return static_cast<std::int64_t>(range_.end - range_.begin); }

  static at::Tensor TensorOf(const at::Tensor& flat, const TensorInfo& tensor) {
    const auto offset = static_cast<std::int64_t>(tensor.offset);
    if (tensor.shape.size() == 1) return flat.narrow(0, offset, tensor.shape[0]);
    std::vector<at::Tensor> blocks;
    ForBlocks(flat, offset, tensor, [&](const at::Tensor& part, std::int64_t) { blocks.push_back(part); });
    return blocks.size() == 1 ? blocks[0] : at::cat(blocks, 1);
  }

  // Puts the gradient of one tensor where it belongs among those of the tower. What lies between tensors stays zero.
  void Keep(const at::Tensor& slope, const TensorInfo& tensor) {
    const auto offset = static_cast<std::int64_t>(tensor.offset - range_.begin);
    if (tensor.shape.size() == 1) {
      gradient_.narrow(0, offset, tensor.shape[0]).copy_(slope);
      return;
    }
    ForBlocks(gradient_, offset, tensor, [&](const at::Tensor& part, std::int64_t first) {
      at::Tensor target = part;
      target.copy_(slope.narrow(1, first, part.size(1)));
    });
  }

  const TowerSpec& spec_;
  ParamRange range_;
  at::Device place_;
  at::ScalarType element_;
  std::vector<TensorInfo> tensors_;  // weight and bias of each layer
  std::vector<at::Tensor> leaves_;   // the same on the device, plain matrices
  at::Tensor gradient_;              // [range], laid out as on the host
  at::Tensor x_, outputs_;           // of the last pass
  at::Tensor on_host_;               // its outputs
};

class TorchTape final : public Tape {
 public:
  TorchTape(const Network& network, const at::Device& place, at::ScalarType element, int pass_size)
      : place_(place), pass_size_(pass_size), buffers_(network.spec(), pass_size) {
    for (std::size_t t = 0; t < network.spec().towers.size(); ++t) {
      tracks_.emplace_back(network, t, place, element);
    }
  }

  void SetParams(std::span<const float> params) override {
    params_ = params;
    OnDevice(place_, [&] {
      const at::Tensor flat = OnHost(params.data(), {static_cast<std::int64_t>(params.size())}).to(place_);
      for (Track& track : tracks_) track.SetParams(flat);
    });
  }
  std::span<const float> params() const override { return params_; }
  void SetLossScale(float scale) override { loss_scale_ = scale; }

  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    return OnDevice(place_, [&] { return tracks_[tower].Forward(x, n); });
  }
  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    OnDevice(place_, [&] { tracks_[tower].Backward(d_outputs, gradient, d_x, loss_scale_); });
  }
  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    AddGradientInPasses(*this, pass_size_, buffers_, samples, gradient);
  }

 private:
  const at::Device place_;
  const int pass_size_;
  PassBuffers buffers_;
  std::span<const float> params_;
  float loss_scale_ = 1;
  std::vector<Track> tracks_;
};

// Libtorch has a price for each operation, whatever its size, so passes are large; but a pass of wide rows need not be.
int PassSize(const NetworkSpec& spec, const at::Device& place) {
  const int floats = place.is_cuda() ? 16 << 20 : 1 << 20;
  int widest = 1;
  for (const TowerSpec& tower : spec.towers) {
    widest = std::max({widest, tower.inputs, tower.outputs});
    for (const int width : tower.hidden) widest = std::max(widest, width);
  }
  return std::clamp(floats / widest, 64, 4096);
}

class TorchExecutor final : public Executor {
 public:
  TorchExecutor(const Network& network, const Computing& computing)
      : network_(network),
        precision_(computing.precision),
        place_(PlaceOf(computing.device)),
        pass_size_(PassSize(network.spec(), place_)) {
    OneThreadInFull();
  }

  const Network& network() const override { return network_; }
  int pass_size() const override { return pass_size_; }
  bool loss_scaled() const override { return NeedsLossScale(precision_); }
  // Memory of the device is taken as passes need it.
  std::unique_ptr<Tape> MakeTape(int capacity) const override {
    return OnDevice(place_, [&] {
      return std::make_unique<TorchTape>(network_, place_, ElementOf(precision_),
                                         std::min(capacity, pass_size_));
    });
  }

 private:
  const Network& network_;
  const Precision precision_;
  const at::Device place_;
  const int pass_size_;
};

}  // namespace

std::unique_ptr<Executor> MakeTorchExecutor(const Network& network, const Computing& computing) {
  return std::make_unique<TorchExecutor>(network, computing);
}

}  // namespace trireme
