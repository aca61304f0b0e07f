#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/optim/clip.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

std::string Section(int rank, const char* what) { return fmt::format("local/{}/{}", rank, what); }

void Scale(std::span<float> values, float factor) {
  for (float& value : values) value *= factor;
}

class LocalStepsStore final : public ParameterStore {
 public:
  LocalStepsStore(Communicator& comm, const OptimizerSettings& settings, std::span<const float> initial,
                  int local_steps)
      : comm_(comm),
        local_steps_(local_steps),
        settings_(settings),
        params_(initial.size()),
        optimizer_(settings, initial.size()) {
    std::ranges::copy(initial, params_.begin());
  }

  std::span<const float> Pull() override {
    shows_average_ = false;
    return params_.span();
  }
  std::span<const float> params() const override { return shows_average_ ? average_.span() : params_.span(); }
  void Refresh() override {
    shows_average_ = since_ > 0;  // else all have the same
    if (!shows_average_) return;
    if (average_.size() == 0) average_ = AlignedBuffer<float>(params_.size());
    std::ranges::copy(params_, average_.begin());
    Average(average_.span());
  }

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    TRIREME_CHECK(gradient.size() >= params_.size());
    shows_average_ = false;
    const std::span<float> own = gradient.first(params_.size()),
                           statistics = gradient.subspan(params_.size());
    Scale(own, static_cast<float>(comm_.size()));
    const double norm = ClipGradient(own, rule.max_grad_norm, rule.groups);
    shared_.assign(statistics.begin(), statistics.end());
    shared_.push_back(static_cast<float>(norm));
    comm_.AllReduceSum(std::span(shared_));
    std::copy_n(shared_.begin(), statistics.size(), statistics.begin());
    ++pushes_;
    const double mean_norm = double{shared_.back()} / comm_.size();
    if (!std::isfinite(mean_norm)) return mean_norm;  // so it is for all
    optimizer_.Step(params_.span(), own, rule.learning_rate, rule.groups);
    if (++since_ == local_steps_) {
      Average(params_.span());
      for (AlignedBuffer<float>& moment : optimizer_.moments()) Average(moment.span());
      since_ = 0;
    }
    return mean_norm;
  }

  void Share(std::span<double> values) override { comm_.AllReduceSum(values); }
  Traffic traffic() const override { return {.pushes = pushes_}; }
  Staleness staleness() const override { return {}; }

  // The optimizer's is this worker's own.
  void Save(StateWriter& out) const override {
    out.Put<float>("params", params());
    optimizer_.Save(out, "optimizer");
  }
  void Load(const StateReader& in) override {
    in.Get<float>(in.Has(kExactParams) ? kExactParams : "params", params_.span());
    optimizer_.Load(in, "optimizer");
    since_ = 0;
  }

  void SaveOwn(StateWriter& out) const override {
    if (since_ == 0) return;
    out.Put<float>(Section(comm_.rank(), "params"), params_.span());
    optimizer_.Save(out, Section(comm_.rank(), "optimizer"));
    out.PutValue<std::int32_t>(Section(comm_.rank(), "since"), since_);
  }
  std::string LoadOwn(const StateReader& in) override {
    int saved = 0;
    while (in.Has(Section(saved, "params"))) ++saved;
    if (saved == 0) return "";
    if (saved != comm_.size()) {
      LoadAverage(in, saved);
      return "the workers begin with the average of what they had: their number has changed";
    }
    LoadOf(comm_.rank(), in, params_.span(), optimizer_);
    since_ = in.GetValue<std::int32_t>(Section(comm_.rank(), "since"));
    if (since_ < 0 || since_ >= local_steps_) {  // local_steps was changed
      LoadAverage(in, saved);
      return "the workers begin with the average of what they had: local_steps has changed";
    }
    return "";
  }

 private:
  // values <- their mean over all workers. The number of workers is a power of two: dividing is exact.
  void Average(std::span<float> values) {
    comm_.AllReduceSum(values);
    Scale(values, 1.0f / static_cast<float>(comm_.size()));
  }

  static void LoadOf(int rank, const StateReader& in, std::span<float> params, Optimizer& optimizer) {
    in.Get<float>(Section(rank, "params"), params);
    optimizer.Load(in, Section(rank, "optimizer"));
  }

  // Of all that were saved, in the same order everywhere.
  void LoadAverage(const StateReader& in, int saved) {
    AlignedBuffer<float> params(params_.size());
    for (int rank = 0; rank < saved; ++rank) {
      Optimizer optimizer(settings_, params_.size());
      LoadOf(rank, in, params.span(), optimizer);
      const auto add = [&](const AlignedBuffer<float>& from, AlignedBuffer<float>& to) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = rank == 0 ? from[i] : to[i] + from[i];
        if (rank + 1 == saved) Scale(to.span(), 1.0f / static_cast<float>(saved));
      };
      add(params, params_);
      if (rank == 0) optimizer_.Load(in, Section(0, "optimizer"));  // its steps
      for (std::size_t m = 0; m < optimizer.moments().size(); ++m)
        add(optimizer.moments()[m], optimizer_.moments()[m]);
    }
    since_ = 0;
  }

  Communicator& comm_;
  const int local_steps_;
  const OptimizerSettings settings_;
  AlignedBuffer<float> params_;
  Optimizer optimizer_;
  int since_ = 0;  // pushes since the last average
  bool shows_average_ = false;
  AlignedBuffer<float> average_;  // of parameters, where they differ
  std::vector<float> shared_;
  std::uint64_t pushes_ = 0;
};

}  // namespace

std::unique_ptr<ParameterStore> MakeLocalStepsStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                    std::span<const float> initial, int local_steps) {
  return std::make_unique<LocalStepsStore>(comm, optimizer, initial, local_steps);
}

}  // namespace trireme
