#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/optim/clip.h"
#include "trireme/store/gradient_sum.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

class AllReduceStore final : public ParameterStore {
 public:
  AllReduceStore(Communicator& comm, const OptimizerSettings& optimizer, std::span<const float> initial,
                 std::unique_ptr<GradientSum> sum, NormMeasure* norms)
      : comm_(comm),
        sum_(std::move(sum)),
        norms_(norms),
        params_(initial.size()),
        optimizer_(optimizer, initial.size()) {
    std::copy(initial.begin(), initial.end(), params_.begin());
  }

  std::span<const float> Pull() override { return params_.span(); }
  std::span<const float> params() const override { return params_.span(); }
  void Refresh() override {}

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    TRIREME_CHECK(gradient.size() >= params_.size());
    sum_->Sum(gradient, params_.size());
    ++pushes_;
    const std::span<float> of_params = gradient.first(params_.size());
    const double norm = norms_ == nullptr ? ClipGradient(of_params, rule.max_grad_norm, rule.groups)
                                          : ClipGradient(of_params, rule.max_grad_norm, rule.groups,
                                                         norms_->Measure(of_params, rule.groups));
    if (std::isfinite(norm)) optimizer_.Step(params_.span(), of_params, rule.learning_rate, rule.groups);
    return norm;
  }

  void Share(std::span<double> values) override { comm_.AllReduceSum(values); }

  Traffic traffic() const override {
    Traffic traffic = sum_->traffic();
    traffic.pushes = pushes_;
    return traffic;
  }
  Staleness staleness() const override { return {}; }
  double ResidualNorm() const override { return sum_->ResidualNorm(); }

  void Save(StateWriter& out) const override {
    out.PutLikeParams("params", params_.span());
    optimizer_.Save(out, "optimizer");
  }

  void Load(const StateReader& in) override {
    in.GetLikeParams(in.Has(kExactParams) ? kExactParams : "params", params_.span());
    optimizer_.Load(in, "optimizer");
  }
  void SaveOwn(StateWriter& out) const override { sum_->SaveOwn(out); }
  std::string LoadOwn(const StateReader& in) override { return sum_->LoadOwn(in); }

 private:
  Communicator& comm_;
  std::unique_ptr<GradientSum> sum_;
  NormMeasure* norms_;  // null: all parameters are here
  AlignedBuffer<float> params_;
  Optimizer optimizer_;
  std::uint64_t pushes_ = 0;
};

}  // namespace

std::unique_ptr<ParameterStore> MakeAllReduceStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                   std::span<const float> initial,
                                                   std::unique_ptr<GradientSum> sum) {
  return std::make_unique<AllReduceStore>(comm, optimizer, initial, std::move(sum), nullptr);
}

std::unique_ptr<ParameterStore> MakeAllReduceStore(Communicator& comm, const OptimizerSettings& optimizer,
                                                   std::span<const float> initial, NormMeasure* norms) {
  return std::make_unique<AllReduceStore>(comm, optimizer, initial, MakePlainSum(comm), norms);
}

}  // namespace trireme
