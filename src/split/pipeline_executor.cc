#include "trireme/split/pipeline_executor.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/nn/passes.h"

namespace trireme {
namespace {

class PipelineTape final : public Tape {
 public:
  PipelineTape(const NetworkSpec& spec, const std::vector<Tower>& towers, PeerCommunicator& group,
               PipelineTimes& times, int micro_batches, int pass_size, int capacity)
      : group_(group),
        times_(times),
        wanted_(micro_batches),
        pass_size_(pass_size),
        slots_(group.size() - group.rank()),
        buffers_(spec, pass_size) {
    const int rows = std::max(capacity, slots_ * pass_size);
    if (first())
      x_ = AlignedBuffer<float>(static_cast<std::size_t>(slots_) * pass_size * spec.towers[0].inputs);
    for (const Tower& tower : towers) tracks_.emplace_back(tower, rows, first(), last());
  }

  void SetParams(std::span<const float> params) override {
    params_ = params;
    for (Track& track : tracks_) {
      track.n = 0;
      track.prepared = false;
    }
  }
  std::span<const float> params() const override { return params_; }

  // Chunk by chunk, so that a stage begins while the one before goes on.
  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    Track& track = tracks_[tower];
    track.x = x;
    track.n = n;
    const auto chunks = [n](auto&& step) {
      for (int at = 0; at < n; at += Tower::kChunk) step(at, std::min(Tower::kChunk, n - at));
    };
    chunks([&](int at, int count) {
      Run(track, first() ? x + static_cast<std::size_t>(at) * track.tower.input_stride() : nullptr, count,
          at);
      if (last()) SendOutputs(track, count, at);
    });
    if (!last()) chunks([&](int at, int count) { ReceiveOutputs(track, count, at); });
    return {track.Outputs(last(), 0), static_cast<std::size_t>(n) * track.tower.spec().outputs};
  }

  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    Track& track = tracks_[tower];
    TRIREME_CHECK(track.n > 0);
    RunBack(track, first() ? track.x : nullptr, d_outputs, track.n, 0, gradient, d_x);
    if (d_x == nullptr) return;
    const std::size_t floats = static_cast<std::size_t>(track.n) * track.tower.spec().inputs;
    if (!first()) return group_.Receive(0, {d_x, floats});
    for (int other = 1; other < group_.size(); ++other) group_.Send(other, {d_x, floats});
  }

  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    const double begun_s = MonotonicSeconds(), idle_s = group_.traffic().idle_s;
    const int size = samples.size();
    const int even = (size + wanted_ - 1) / wanted_;
    const int chunks = (even + Tower::kChunk - 1) / Tower::kChunk;
    micro_ = std::min(pass_size_, chunks * Tower::kChunk);
    const int passes = (size + micro_ - 1) / micro_;
    const int ahead = std::min(slots_ - 1, passes);
    for (int i = 0; i < ahead; ++i) ForwardPass(i, samples);
    for (int i = 0; i < passes; ++i) {
      if (i + ahead < passes) ForwardPass(i + ahead, samples);
      BackwardPass(i, samples, gradient);
    }
    for (Track& track : tracks_) track.n = 0;
    times_.total_s += MonotonicSeconds() - begun_s;
    times_.idle_s += group_.traffic().idle_s - idle_s;
    times_.micro_batches += static_cast<std::uint64_t>(passes);
    ++times_.batches;
  }

 private:
  // One tower's layers of this stage.
  struct Track {
    Track(const Tower& tower, int rows, bool first, bool last) : tower(tower), workspace(tower, rows) {
      const auto floats = static_cast<std::size_t>(rows);
      if (!first) in = AlignedBuffer<float>(floats * tower.input_stride());
      if (!first) d_in = AlignedBuffer<float>(floats * tower.input_stride());
      if (!last) d_top = AlignedBuffer<float>(floats * workspace.top_stride());
      if (!last) outputs = AlignedBuffer<float>(floats * tower.spec().outputs);
    }
    const float* Outputs(bool own, int at) const {
      const float* all = own ? workspace.out().data() : outputs.data();
      return all + static_cast<std::size_t>(at) * tower.spec().outputs;
    }

    const Tower& tower;
    TowerWorkspace workspace;
    AlignedBuffer<float> in;       // from the stage before, [rows, input stride]
    AlignedBuffer<float> d_in;     // for it
    AlignedBuffer<float> d_top;    // from the stage behind, [rows, stride of the last layer]
    AlignedBuffer<float> outputs;  // of the whole tower, from the last stage
    const float* x = nullptr;      // of the last Forward
    int n = 0;
    bool prepared = false;  // for Backward with these parameters
  };

  bool first() const { return group_.rank() == 0; }
  bool last() const { return group_.rank() == group_.size() - 1; }
  static std::span<float> RowsOf(AlignedBuffer<float>& buffer, int stride, int at, int n) {
    return buffer.span().subspan(static_cast<std::size_t>(at) * stride, static_cast<std::size_t>(n) * stride);
  }

  // Samples [at, at + n) of the workspace through the layers of this stage. x: of the first stage.
  void Run(Track& track, const float* x, int n, int at) {
    const int stride = track.tower.input_stride();
    if (!first()) {
      const std::span<float> in = RowsOf(track.in, stride, at, n);
      group_.Receive(group_.rank() - 1, in);
      x = in.data();
    }
    track.tower.Forward(params_.data(), x, n, track.workspace, at);
    if (last()) return;
    const int top_stride = track.workspace.top_stride();
    group_.Send(group_.rank() + 1, {track.workspace.top(at), static_cast<std::size_t>(n) * top_stride});
  }

  // And back. d_outputs: of the last stage; d_x, of the first, may be null.
  void RunBack(Track& track, const float* x, const float* d_outputs, int n, int at, std::span<float> gradient,
               float* d_x) {
    if (!track.prepared) track.tower.PrepareBackward(params_.data(), track.workspace);
    track.prepared = true;
    if (!last()) {
      const std::span<float> d_top = RowsOf(track.d_top, track.workspace.top_stride(), at, n);
      group_.Receive(group_.rank() + 1, d_top);
      d_outputs = d_top.data();
    }
    const int stride = track.tower.input_stride();
    if (first()) {
      return track.tower.Backward(params_.data(), x, d_outputs, n, track.workspace, gradient.data(), d_x, at);
    }
    const std::span<float> d_in = RowsOf(track.d_in, stride, at, n);
    track.tower.Backward(params_.data(), RowsOf(track.in, stride, at, n).data(), d_outputs, n,
                         track.workspace, gradient.data(), d_in.data(), at);
    group_.Send(group_.rank() - 1, d_in);
  }

  void SendOutputs(const Track& track, int n, int at) {
    const std::size_t floats = static_cast<std::size_t>(n) * track.tower.spec().outputs;
    for (int other = 0; other + 1 < group_.size(); ++other)
      group_.Send(other, {track.Outputs(true, at), floats});
  }
  void ReceiveOutputs(Track& track, int n, int at) {
    group_.Receive(group_.size() - 1, RowsOf(track.outputs, track.tower.spec().outputs, at, n));
  }

  struct Pass {
    int begin, n, at;  // first sample, their number, and their place in the workspaces
  };
  Pass PassOf(int i, const LossSamples& samples) const {
    return {i * micro_, std::min(micro_, samples.size() - i * micro_), i % slots_ * pass_size_};
  }
  float* Inputs(const Pass& pass) {
    return x_.data() + static_cast<std::size_t>(pass.at) * tracks_[0].tower.spec().inputs;
  }

  void ForwardPass(int i, LossSamples& samples) {
    const Pass pass = PassOf(i, samples);
    if (first()) {
      const std::size_t floats = static_cast<std::size_t>(pass.n) * tracks_[0].tower.spec().inputs;
      std::copy_n(samples.Inputs(pass.begin, pass.n), floats, Inputs(pass));
    }
    for (Track& track : tracks_) Run(track, first() ? Inputs(pass) : nullptr, pass.n, pass.at);
    if (!last()) return;
    for (Track& track : tracks_) SendOutputs(track, pass.n, pass.at);
    Loss(pass, samples);
  }

  // What the loss is of a pass is known to the other stages before its gradient comes back.
  void BackwardPass(int i, LossSamples& samples, std::span<float> gradient) {
    const Pass pass = PassOf(i, samples);
    if (!last()) {
      for (Track& track : tracks_) ReceiveOutputs(track, pass.n, pass.at);
      Loss(pass, samples);
    }
    for (std::size_t t = tracks_.size(); t-- > 0;) {
      RunBack(tracks_[t], first() ? Inputs(pass) : nullptr, buffers_.d_outputs()[t], pass.n, pass.at,
              gradient, nullptr);
    }
  }

  void Loss(const Pass& pass, LossSamples& samples) {
    for (std::size_t t = 0; t < tracks_.size(); ++t)
      buffers_.outputs()[t] = tracks_[t].Outputs(last(), pass.at);
    samples.Loss(pass.begin, pass.n, buffers_.outputs(), buffers_.d_outputs());
  }

  PeerCommunicator& group_;
  PipelineTimes& times_;
  int wanted_, pass_size_;
  int micro_ = 0;  // samples of a pass of the current batch
  int slots_;      // passes whose activations are held
  PassBuffers buffers_;
  AlignedBuffer<float> x_;  // of the first stage: inputs of passes, [slots, pass_size, inputs]
  std::span<const float> params_;
  std::vector<Track> tracks_;
};

}  // namespace

PipelineExecutor::PipelineExecutor(const NetworkShare& share, PeerCommunicator& group, PipelineTimes& times)
    : share_(share), group_(group), times_(times), pass_size_(SamplesInCache(share.network().spec())) {
  TRIREME_CHECK(share.parts().split().kind == ModelSplit::Kind::kPipeline);
  TRIREME_CHECK(group.size() == share.parts().members() && group.rank() == share.member());
  times.stages = group.size();
  ParamLayout layout;
  for (const TowerSpec& spec : network().spec().towers) {
    towers_.emplace_back(spec, layout, StagesOf(spec, group.size())[group.rank()]);
  }
}

std::unique_ptr<Tape> PipelineExecutor::MakeTape(int capacity) const {
  return std::make_unique<PipelineTape>(network().spec(), towers_, group_, times_,
                                        share_.parts().split().micro_batches, pass_size_, capacity);
}

}  // namespace trireme
