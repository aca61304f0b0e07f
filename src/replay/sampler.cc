#include "trireme/replay/sampler.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"

namespace trireme {
namespace {

constexpr std::size_t kBlock = 256;        // slots handled at once, in arrays on the stack
constexpr float kLargestError = 1e18f;     // times 2^32 slots: well inside the floats
constexpr float kSmallestBase = 1e-30f;    // where neither error nor epsilon is above zero
constexpr float kLargestPriority = 2e18f;  // kLargestError^1, and the rounding of the power

// priorities[i] = (|errors[i]| + epsilon)^alpha for a whole number of vectors; returns the largest of them
// and `highest`, which stands in for errors that are not finite.
struct PriorityKernel {
  TRIREME_INLINE float Run(const float* errors, std::size_t n, float alpha, float epsilon, float highest,
                           float* priorities) {
    const Vec8 stand_in = Vec8{} + highest, largest_float = Vec8{} + std::numeric_limits<float>::max();
    const Vec8 most = Vec8{} + kLargestError, least = Vec8{} + kSmallestBase;
    Vec8 largest = stand_in;
    for (std::size_t i = 0; i < n; i += 8) {
      const auto error = LoadAs<Vec8>(errors + i);
      const Vec8 size = error < 0.0f ? -error : error;
      Vec8 base = size + epsilon;
      base = base < most ? base : most;  // NaN becomes `most`
      base = base > least ? base : least;
      const Vec8 power = FastExp(alpha * FastLog(base));
      const Vec8 priority = size <= largest_float ? power : stand_in;
      largest = priority > largest ? priority : largest;
      Store(priorities + i, priority);
    }
    float result = highest;
    for (int lane = 0; lane < 8; ++lane) result = std::max(result, largest[lane]);
    return result;
  }
};

// weights[i] = (smallest / weights[i])^beta for a whole number of vectors.
struct WeightKernel {
  TRIREME_INLINE void Run(float* weights, std::size_t n, float smallest, float beta) {
    const Vec8 log_smallest = FastLog(Vec8{} + smallest);
    for (std::size_t i = 0; i < n; i += 8) {
      const auto priority = LoadAs<Vec8>(weights + i);
      const Vec8 log_ratio = log_smallest - FastLog(priority);
      // Above zero by rounding alone.
      Store(weights + i, FastExp(beta * (log_ratio < 0.0f ? log_ratio : Vec8{})));
    }
  }
};

constexpr std::size_t RoundUpToVector(std::size_t n) { return (n + 7) / 8 * 8; }

}  // namespace

void SampleUniform(RandomStream& random, std::size_t size, std::span<std::uint32_t> slots) {
  TRIREME_CHECK(size > 0 && size <= std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t& slot : slots) slot = random.NextBelow(static_cast<std::uint32_t>(size));
}

PrioritisedSampler::PrioritisedSampler(std::size_t capacity, double alpha, double epsilon)
    : alpha_(static_cast<float>(alpha)),
      epsilon_(static_cast<float>(epsilon)),
      tree_(capacity),
      new_slots_(kBlock) {
  TRIREME_CHECK(alpha >= 0 && alpha <= 1);
  TRIREME_CHECK(epsilon >= 0 && epsilon <= 1);
}

std::uint64_t PrioritisedSampler::Bytes(std::size_t capacity) {
  return SumTree::Bytes(capacity) + kBlock * sizeof(std::uint32_t);
}

void PrioritisedSampler::Added(std::size_t slot) {
  TRIREME_CHECK(slot < capacity());
  if (new_count_ == new_slots_.size()) Flush();
  new_slots_[new_count_++] = static_cast<std::uint32_t>(slot);
}

void PrioritisedSampler::Flush() {
  if (new_count_ == 0) return;
  float priorities[kBlock];
  std::fill_n(priorities, new_count_, highest_);
  tree_.Set(new_slots_.span().first(new_count_), {priorities, new_count_});
  new_count_ = 0;
}

void PrioritisedSampler::Sample(RandomStream& random, double beta, std::span<std::uint32_t> slots,
                                std::span<float> weights) {
  TRIREME_CHECK(slots.size() == weights.size());
  Flush();
  TRIREME_CHECK(tree_.total() > 0);
  const double part = tree_.total() / static_cast<double>(slots.size());
  float smallest = std::numeric_limits<float>::max();
  for (std::size_t begin = 0; begin < slots.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, slots.size() - begin);
    double positions[kBlock];
    for (std::size_t i = 0; i < n; ++i) {
      positions[i] = (static_cast<double>(begin + i) + 0x1p-32 * random.NextBits()) * part;
    }
    tree_.Find({positions, n}, slots.subspan(begin, n));
    for (std::size_t i = begin; i < begin + n; ++i) {
      weights[i] = tree_.Get(slots[i]);
      smallest = std::min(smallest, weights[i]);
    }
  }
  for (std::size_t begin = 0; begin < slots.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, slots.size() - begin);
    float block[kBlock];
    std::copy_n(weights.data() + begin, n, block);
    std::fill(block + n, block + RoundUpToVector(n), smallest);
    SimdCall<WeightKernel>(&block[0], RoundUpToVector(n), smallest, static_cast<float>(beta));
    std::copy_n(block, n, weights.data() + begin);
  }
}

void PrioritisedSampler::Update(std::span<const std::uint32_t> slots, std::span<const float> errors) {
  TRIREME_CHECK(slots.size() == errors.size());
  Flush();
  for (std::size_t begin = 0; begin < slots.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, slots.size() - begin);
    float block[kBlock], priorities[kBlock];
    std::copy_n(errors.data() + begin, n, block);
    std::fill(block + n, block + RoundUpToVector(n), 0.0f);
    highest_ = SimdCall<PriorityKernel>(static_cast<const float*>(block), RoundUpToVector(n), alpha_,
                                        epsilon_, highest_, &priorities[0]);
    tree_.Set(slots.subspan(begin, n), {priorities, n});
  }
}

void PrioritisedSampler::Save(StateWriter& out, const std::string& scope) const {
  std::vector<float> priorities(tree_.values().begin(), tree_.values().end());
  for (std::size_t i = 0; i < new_count_; ++i) priorities[new_slots_[i]] = highest_;
  while (!priorities.empty() && priorities.back() == 0) priorities.pop_back();
  out.PutValue<float>(scope + "/highest", highest_);
  out.PutValue<std::uint64_t>(scope + "/count", priorities.size());
  out.Put<float>(scope + "/priorities", priorities);
}

void PrioritisedSampler::Load(const StateReader& in, const std::string& scope) {
  const auto highest = in.GetValue<float>(scope + "/highest");
  const auto count = in.GetValue<std::uint64_t>(scope + "/count");
  if (count > capacity()) {
    Fail("the saved state '{}' has priorities for {} transitions; this run keeps {}", scope, count,
         capacity());
  }
  std::vector<float> priorities(count);
  in.Get<float>(scope + "/priorities", priorities);
  // Written so that NaN fails.
  const auto valid = [&](float priority) { return priority >= 0 && priority <= highest; };
  if (!(highest > 0 && highest <= kLargestPriority) || !std::ranges::all_of(priorities, valid)) {
    Fail("the saved state '{}' is damaged: a priority is negative, not finite or above the highest", scope);
  }
  highest_ = highest;
  tree_.Assign(priorities);
  new_count_ = 0;
}

}  // namespace trireme
