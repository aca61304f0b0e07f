// What one worker pays for parameters that others may change at any time: pull and push of the shared store,
// next to a push of the local store, and next to the same copying done with memcpy, which would be a data
// race if there were other workers. The last comparison is the cost of the atomics alone; for Adam with
// shared moments it includes that of interlocking the two.
//
//   store_bench [seconds per row, default 1]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "timing.h"
#include "trireme/base/aligned.h"
#include "trireme/base/simd.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/optim/clip.h"
#include "trireme/store/shared_store.h"

namespace trireme {
namespace {

constexpr UpdateRule kRule{.learning_rate = 1e-6f, .max_grad_norm = 0};

// The work of the shared store with plain memory.
class PlainStore {
 public:
  PlainStore(const OptimizerSettings& optimizer, bool share_moments, std::size_t size)
      : rule_(optimizer), share_moments_(share_moments), shared_(size), params_(size) {
    for (std::size_t m = 0; m < rule_.moments(); ++m) {
      moments_.emplace_back(share_moments ? kTile : size);
      if (share_moments) shared_moments_.emplace_back(size);
    }
  }

  void Pull() { Copy(params_.data(), shared_.data(), params_.size()); }

  double Push(std::span<const float> gradient) {
    const double norm = std::sqrt(SquaredNorm(gradient));
    const OptimizerRule::Step step = rule_.At(++pushes_);
    for (std::size_t begin = 0; begin < params_.size(); begin += kTile) {
      const std::size_t size = std::min(kTile, params_.size() - begin);
      float* moments[OptimizerRule::kMostMoments] = {};
      for (std::size_t m = 0; m < moments_.size(); ++m) {
        moments[m] = moments_[m].data() + (share_moments_ ? 0 : begin);
        if (share_moments_) Copy(moments[m], shared_moments_[m].data() + begin, size);
      }
      float* const params = params_.data() + begin;
      Copy(params, shared_.data() + begin, size);
      rule_.Apply(step, kRule.learning_rate, params, gradient.data() + begin, moments, size);
      Copy(shared_.data() + begin, params, size);
      for (std::size_t m = 0; share_moments_ && m < moments_.size(); ++m) {
        Copy(shared_moments_[m].data() + begin, moments[m], size);
      }
    }
    return norm;
  }

 private:
  static constexpr std::size_t kTile = 1024;  // as in the shared store

  static void Copy(float* to, const float* from, std::size_t size) {
    std::memcpy(to, from, size * sizeof(float));
  }

  OptimizerRule rule_;
  bool share_moments_;
  AlignedBuffer<float> shared_, params_;
  std::vector<AlignedBuffer<float>> shared_moments_, moments_;
  std::int64_t pushes_ = 0;
};

// Median microseconds of each of `works`, taken in turn, in bursts of about 200 microseconds.
std::vector<double> Microseconds(const std::vector<std::function<void()>>& works, double budget) {
  std::vector<int> repeats;
  for (const auto& work : works) {
    for (int i = 0; i < 10; ++i) work();
    const double start = Now();
    work();
    repeats.push_back(std::max(1, static_cast<int>(200e-6 / (Now() - start))));
  }
  std::vector<std::vector<double>> times(works.size());
  const double end = Now() + budget;
  while (Now() < end || times[0].size() < 21) {
    for (std::size_t w = 0; w < works.size(); ++w) {
      const double start = Now();
      for (int i = 0; i < repeats[w]; ++i) works[w]();
      times[w].push_back((Now() - start) * 1e6 / repeats[w]);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& one : times) medians.push_back(Median(one));
  return medians;
}

void PrintRow(OptimizerKind kind, std::size_t size, double budget) {
  const OptimizerSettings optimizer{.kind = kind};
  AlignedBuffer<float> gradient(size);
  for (std::size_t i = 0; i < size; ++i) gradient[i] = std::sin(static_cast<float>(i));
  const std::vector<float> initial(size, 0.5f);

  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto local = MakeAllReduceStore(comm, optimizer, initial);
  std::vector<std::function<void()>> works = {[&] { local->Push(gradient.span(), kRule); }};
  SharedParameters with_moments(optimizer, true, initial), without_moments(optimizer, false, initial);
  const auto shared = MakeSharedStore(with_moments, 0, nullptr);
  const auto own = MakeSharedStore(without_moments, 0, nullptr);
  for (ParameterStore* store : {shared.get(), own.get()}) {
    works.push_back([&, store] {
      store->Pull();
      store->Push(gradient.span(), kRule);
    });
  }
  PlainStore plain_shared(optimizer, true, size), plain_own(optimizer, false, size);
  for (PlainStore* store : {&plain_shared, &plain_own}) {
    works.push_back([&, store] {
      store->Pull();
      store->Push(gradient.span());
    });
  }
  const std::vector<double> t = Microseconds(works, budget);
  fmt::print("{:<9}{:>8}{:>9.2f}", OptimizerName(kind), size, t[0]);
  for (const int i : {1, 2}) fmt::print("{:>11.2f}{:>9.2f}{:>7.2f}", t[i], t[i + 2], t[i] / t[i + 2]);
  fmt::print("\n");
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  const double budget = argc > 1 ? std::atof(argv[1]) : 1.0;
  fmt::print("microseconds, one thread, {}, medians\n", IsaName(CurrentIsa()));
  fmt::print("{:<17}{:>9}{:>27}{:>27}\n", "", "local", "shared moments", "own moments");
  fmt::print("{:<9}{:>8}{:>9}", "", "params", "push");
  for (int i = 0; i < 2; ++i) fmt::print("{:>11}{:>9}{:>7}", "pull+push", "memcpy", "ratio");
  fmt::print("\n");
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kRmsprop}) {
    for (const std::size_t size : {9'000, 70'000}) PrintRow(kind, size, budget);
  }
}
