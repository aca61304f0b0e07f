#include "trireme/store/shared_store.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/optim/clip.h"

namespace trireme {

SharedParameters::SharedParameters(const OptimizerSettings& optimizer, bool share_moments,
                                   std::span<const float> initial)
    : rule_(optimizer),
      params_(initial.size()),
      moments_(share_moments ? rule_.moments() * initial.size() : 0) {
  params_.Store(0, initial);
}

class SharedStore final : public ParameterStore {
 public:
  SharedStore(SharedParameters& shared, int rank, Schedule* schedule)
      : shared_(shared), rank_(rank), schedule_(schedule), params_(shared.size()) {
    for (std::size_t i = 0; i < shared.rule_.moments(); ++i) {
      moments_.emplace_back(shares_moments() ? kTile : shared.size());
    }
    Refresh();
  }

  std::span<const float> Pull() override {
    InTurn(Schedule::Operation::kPull, [&] {
      seen_version_ = shared_.versions_.load(std::memory_order_relaxed);
      Refresh();
    });
    CountMessage();
    return params_.span();
  }

  std::span<const float> params() const override { return params_.span(); }

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    TRIREME_CHECK(gradient.size() >= params_.size());
    const std::span<float> of_params = gradient.first(params_.size());
    const double norm = ClipGradient(of_params, rule.max_grad_norm, rule.groups);
    if (!std::isfinite(norm)) return norm;
    InTurn(Schedule::Operation::kPush, [&] {
      const std::uint64_t earlier = shared_.versions_.fetch_add(1, std::memory_order_relaxed);
      staleness_.Add(earlier - seen_version_);
      seen_version_ = earlier + 1;  // Apply() brings the parameters up to date as well
      ++own_pushes_;
      ++traffic_.pushes;
      Apply(of_params, rule, shares_moments() ? earlier + 1 : own_pushes_);
    });
    CountMessage();
    return norm;
  }

  void Share(std::span<double>) override {}
  void Refresh() override { shared_.params_.Load(0, params_.span()); }

  Traffic traffic() const override { return traffic_; }
  Staleness staleness() const override { return staleness_; }

  void Save(StateWriter& out) const override;
  void Load(const StateReader& in) override;

 private:
  // Floats that are read, changed and written back together. Small enough that two pushes rarely meet in one,
  // large enough that a tile has left the store queue before it is read in wider pieces.
  static constexpr std::size_t kTile = 1024;

  bool shares_moments() const { return shared_.moments_.size() > 0; }

  template <class Operate>
  void InTurn(Schedule::Operation operation, Operate&& operate) {
    if (schedule_ == nullptr) {
      operate();
    } else {
      const double came_s = MonotonicSeconds();
      schedule_->InTurn(rank_, operation, [&] {
        traffic_.idle_s += MonotonicSeconds() - came_s;
        operate();
      });
    }
  }

  // A pull or a push is one message of all parameters.
  void CountMessage() {
    traffic_.messages += 1;
    traffic_.bytes += params_.size() * sizeof(float);
  }

  using Moments = std::vector<AlignedBuffer<float>>;

  static std::string MomentName(std::size_t m) { return fmt::format("optimizer/moment{}", m); }

  // Room for the moments of all parameters.
  Moments WholeMoments() const {
    Moments moments;
    for (std::size_t m = 0; m < shared_.rule_.moments(); ++m) moments.emplace_back(params_.size());
    return moments;
  }
  // Between the shared moments of [begin, begin + size) and as many floats of each of `moments`: the first, or those
  // from `at` on.
  void LoadMoments(std::size_t begin, std::size_t size, Moments& moments) const {
    if (moments.size() == 2) {
      shared_.moments_.LoadPairs(begin, moments[0].span().first(size), moments[1].span().first(size));
    } else {
      shared_.moments_.Load(begin, moments[0].span().first(size));
    }
  }
  void StoreMoments(std::size_t begin, std::size_t size, const Moments& moments, std::size_t at = 0) {
    if (moments.size() == 2) {
      shared_.moments_.StorePairs(begin, moments[0].span().subspan(at, size),
                                  moments[1].span().subspan(at, size));
    } else {
      shared_.moments_.Store(begin, moments[0].span().subspan(at, size));
    }
  }

  // Only what is changed is written: what this worker leaves alone others may change meanwhile.
  void Apply(std::span<const float> gradient, const UpdateRule& rule, std::uint64_t t) {
    const OptimizerRule::Step step = shared_.rule_.At(static_cast<std::int64_t>(t));
    for (std::size_t begin = 0; begin < params_.size(); begin += kTile) {
      const std::size_t size = std::min(kTile, params_.size() - begin);
      const std::span<float> tile = params_.span().subspan(begin, size);
      shared_.params_.Load(begin, tile);
      if (shares_moments()) LoadMoments(begin, size, moments_);
      ForEachRate(begin, begin + size, rule.learning_rate, rule.groups.all(),
                  [&](std::size_t first, std::size_t last, float rate) {
                    const std::size_t at = shares_moments() ? first - begin : first, n = last - first;
                    float* moments[OptimizerRule::kMostMoments] = {};
                    for (std::size_t m = 0; m < moments_.size(); ++m) moments[m] = moments_[m].data() + at;
                    shared_.rule_.Apply(step, rate, params_.data() + first, gradient.data() + first, moments,
                                        n);
                    shared_.params_.Store(first, params_.span().subspan(first, n));
                    if (shares_moments()) StoreMoments(first, n, moments_, at);
                  });
    }
  }

  SharedParameters& shared_;
  int rank_;
  Schedule* schedule_;
  AlignedBuffer<float> params_;     // as last seen
  Moments moments_;                 // own ones, or one tile of the shared ones
  std::uint64_t seen_version_ = 0;  // pushes by anyone when params_ was last brought up to date
  std::uint64_t own_pushes_ = 0;
  Traffic traffic_;
  Staleness staleness_;
};

// Every worker saves the shared part as well, which is the same for all while none of them pushes; loading it
// several times does no harm.
void SharedStore::Save(StateWriter& out) const {
  AlignedBuffer<float> params(params_.size());
  shared_.params_.Load(0, params.span());
  out.Put<float>("params", params.span());
  out.PutText("optimizer/kind", OptimizerName(shared_.rule_.kind()));
  out.PutValue<std::uint8_t>("optimizer/shared", shares_moments());
  Moments shared = WholeMoments();
  if (shares_moments()) LoadMoments(0, params.size(), shared);
  const Moments& moments = shares_moments() ? shared : moments_;
  for (std::size_t m = 0; m < moments.size(); ++m) out.Put<float>(MomentName(m), moments[m].span());
  out.PutValue("store/versions", shared_.versions_.load());
  out.PutValue("store/own_pushes", own_pushes_);
  out.Put<std::uint64_t>("store/staleness", staleness_.pushes);
  out.PutValue("store/staleness_sum", staleness_.sum);
  out.PutValue("store/staleness_most", staleness_.most);
}

void SharedStore::Load(const StateReader& in) {
  CheckOptimizerKind(shared_.rule_.kind(), in.GetText("optimizer/kind"));
  if (in.GetValue<std::uint8_t>("optimizer/shared") != shares_moments()) {
    Fail("it was made with share_moments = {}", !shares_moments());
  }
  AlignedBuffer<float> params(params_.size());
  in.Get<float>("params", params.span());
  Moments moments = WholeMoments();
  for (std::size_t m = 0; m < moments.size(); ++m) in.Get<float>(MomentName(m), moments[m].span());
  shared_.params_.Store(0, params.span());
  if (shares_moments()) {
    StoreMoments(0, params.size(), moments);
  } else {
    moments_ = std::move(moments);
  }
  shared_.versions_.store(in.GetValue<std::uint64_t>("store/versions"));
  own_pushes_ = in.GetValue<std::uint64_t>("store/own_pushes");
  in.Get<std::uint64_t>("store/staleness", staleness_.pushes);
  staleness_.sum = in.GetValue<std::uint64_t>("store/staleness_sum");
  staleness_.most = in.GetValue<std::uint64_t>("store/staleness_most");
  seen_version_ = shared_.versions_.load();
  Refresh();
}

std::unique_ptr<ParameterStore> MakeSharedStore(SharedParameters& shared, int rank, Schedule* schedule) {
  return std::make_unique<SharedStore>(shared, rank, schedule);
}

}  // namespace trireme
