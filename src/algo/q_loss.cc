#include "trireme/algo/q_loss.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "trireme/algo/policy_kernels.h"
#include "trireme/base/simd.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

// A head known when compiling, so that loops over few choices unroll; kFixed = 0 stands for any number of
// choices. The stride stays a variable: knowing it, GCC 12 gathers with longer shuffles instead of plain
// loads.
template <int kFixed, bool kIsDueling>
struct HeadOf {
  static constexpr bool kDueling = kIsDueling;
  explicit HeadOf(const QHead& head) : any(head.choices), stride(head.outputs()) {}
  [[gnu::always_inline]] int choices() const { return kFixed > 0 ? kFixed : any; }

  int any;
  std::ptrdiff_t stride;
};

// What has to be added to an advantage to make it a Q value: V - mean A.
template <class T, class Head>
[[gnu::always_inline]] inline T Baseline(const Head& head, const float* row) {
  T sum = LoadStrided<T>(row, head.stride);
  for (int a = 1; a < head.choices(); ++a) sum += LoadStrided<T>(row + a, head.stride);
  return LoadStrided<T>(row + head.choices(), head.stride) - sum * (1.0f / head.choices());
}

// Advantages alone decide which action is best: the baseline is the same for all.
template <class Head>
struct GreedyKernel {
  template <class T>
  TRIREME_INLINE void Samples(const Head& head, const float* outputs, int b, float* actions) {
    const float* row = outputs + b * head.stride;
    T best = LoadStrided<T>(row, head.stride);
    T action = T{};
    for (int a = 1; a < head.choices(); ++a) {
      const T value = LoadStrided<T>(row + a, head.stride);
      const auto better = value > best;
      best = better ? value : best;
      action = better ? T{} + static_cast<float>(a) : action;
    }
    Store(actions + b, action);
  }

  TRIREME_INLINE void Run(Head head, const float* outputs, int n, float* actions) {
    int b = 0;
    for (; b + 8 <= n; b += 8) Samples<Vec8>(head, outputs, b, actions);
    for (; b < n; ++b) Samples<float>(head, outputs, b, actions);
  }
};

// `choosing` are the outputs that choose the action: those of the target network itself give its maximum.
template <class Head>
struct TargetKernel {
  template <class T>
  TRIREME_INLINE void Samples(const Head& head, const float* target_outputs, const float* choosing,
                              const float* returns, const float* discounts, int b, float* targets) {
    const std::ptrdiff_t stride = head.stride;
    const float* row = target_outputs + b * stride;
    const float* choosing_row = choosing + b * stride;
    T best = LoadStrided<T>(choosing_row, stride);
    T next = LoadStrided<T>(row, stride);
    for (int a = 1; a < head.choices(); ++a) {
      const T value = LoadStrided<T>(choosing_row + a, stride);
      const auto better = value > best;
      best = better ? value : best;
      next = better ? LoadStrided<T>(row + a, stride) : next;
    }
    if constexpr (Head::kDueling) next += Baseline<T>(head, row);
    const T ret = LoadAs<T>(returns + b), discount = LoadAs<T>(discounts + b);
    const T bootstrapped = ret + discount * next;
    Store(targets + b, discount == 0.0f ? ret : bootstrapped);
  }

  TRIREME_INLINE void Run(Head head, const float* target_outputs, const float* choosing, const float* returns,
                          const float* discounts, int n, float* targets) {
    int b = 0;
    for (; b + 8 <= n; b += 8) Samples<Vec8>(head, target_outputs, choosing, returns, discounts, b, targets);
    for (; b < n; ++b) Samples<float>(head, target_outputs, choosing, returns, discounts, b, targets);
  }
};

template <class T>
struct Sums {
  T loss, value, error;
};

template <class Head>
struct LossKernel {
  template <class T>
  TRIREME_INLINE void Samples(const Head& head, const QBatch& batch, float limit, float per_sample,
                              const float* outputs, int b, float* d_outputs, float* errors, Sums<T>& sums) {
    const std::ptrdiff_t stride = head.stride;
    const float* row = outputs + b * stride;
    float* out = d_outputs + b * stride;
    const T action = LoadAs<T>(batch.actions + b);
    T value = LoadStrided<T>(row, stride);
    for (int a = 1; a < head.choices(); ++a) {
      value = action == static_cast<float>(a) ? LoadStrided<T>(row + a, stride) : value;
    }
    if constexpr (Head::kDueling) value += Baseline<T>(head, row);

    const T weight = batch.weights == nullptr ? T{} + 1.0f : LoadAs<T>(batch.weights + b);
    const T error = value - LoadAs<T>(batch.targets + b);
    // The error comes second: a comparison with NaN is false, and NaN must not be clipped into a usual
    // gradient.
    const T clipped = Min(T{} + limit, Max(error, T{} - limit));
    const T magnitude = Max(error, -error);
    Store(errors + b, magnitude);
    // clipped (error - clipped / 2) is both branches of the loss.
    sums.loss += weight * clipped * (error - 0.5f * clipped);
    sums.value += value;
    sums.error += magnitude;

    const T g = weight * clipped * per_sample;
    const T others = Head::kDueling ? -g * (1.0f / head.choices()) : T{};
    for (int a = 0; a < head.choices(); ++a) {
      StoreStrided<T>(out + a, stride, action == static_cast<float>(a) ? g + others : others);
    }
    if constexpr (Head::kDueling) StoreStrided<T>(out + head.choices(), stride, g);
  }

  // Eight sums run side by side over the blocks of eight and are added up at the end, then those of the rest.
  TRIREME_INLINE void Run(Head head, const QBatch* batch, float limit, float per_sample, const float* outputs,
                          float* d_outputs, float* errors, float* stats) {
    int b = 0;
    Sums<Vec8> blocks{};
    for (; b + 8 <= batch->n; b += 8)
      Samples<Vec8>(head, *batch, limit, per_sample, outputs, b, d_outputs, errors, blocks);
    Sums<float> rest{};
    for (; b < batch->n; ++b)
      Samples<float>(head, *batch, limit, per_sample, outputs, b, d_outputs, errors, rest);
    stats[kQLoss] += SumOf(blocks.loss) + rest.loss;
    stats[kQValue] += SumOf(blocks.value) + rest.value;
    stats[kQError] += SumOf(blocks.error) + rest.error;
  }
};

template <template <class> class Kernel, bool kDueling, class... Args>
void CallWith(const QHead& head, Args... args) {
  switch (head.choices) {
    case 2:
      return SimdCall<Kernel<HeadOf<2, kDueling>>>(HeadOf<2, kDueling>(head), args...);
    case 3:
      return SimdCall<Kernel<HeadOf<3, kDueling>>>(HeadOf<3, kDueling>(head), args...);
    default:
      return SimdCall<Kernel<HeadOf<0, kDueling>>>(HeadOf<0, kDueling>(head), args...);
  }
}

// Runs the copy of a kernel that was compiled for this head.
template <template <class> class Kernel, class... Args>
void CallFor(const QHead& head, Args... args) {
  return head.dueling ? CallWith<Kernel, true>(head, args...) : CallWith<Kernel, false>(head, args...);
}

// The allowed choice of the highest output, the first of several.
int BestAllowed(const QHead& head, const float* row, const std::uint8_t* mask) {
  int best = -1;
  for (int a = 0; a < head.choices; ++a) {
    if (mask[a] != 0 && (best < 0 || row[a] > row[best])) best = a;
  }
  return std::max(best, 0);
}

float BaselineOf(const QHead& head, const float* row) { return Baseline<float>(HeadOf<0, true>(head), row); }

}  // namespace

void QGreedy(const QHead& head, const float* outputs, int n, float* actions, const std::uint8_t* masks) {
  if (masks != nullptr) {
    for (int b = 0; b < n; ++b, outputs += head.outputs(), masks += head.choices) {
      actions[b] = static_cast<float>(BestAllowed(head, outputs, masks));
    }
    return;
  }
  CallFor<GreedyKernel>(head, outputs, n, actions);
}

void QOfActions(const QHead& head, const float* outputs, const float* actions, int n, float* values) {
  for (int b = 0; b < n; ++b, outputs += head.outputs()) {
    values[b] = outputs[static_cast<int>(actions[b])] + (head.dueling ? BaselineOf(head, outputs) : 0.0f);
  }
}

int RandomChoice(std::uint32_t bits, int choices, const std::uint8_t* mask) {
  const auto below = [&](std::int64_t n) { return static_cast<int>((std::uint64_t{bits} * n) >> 32); };
  if (mask == nullptr) return below(choices);
  int left = below(std::count_if(mask, mask + choices, [](std::uint8_t allowed) { return allowed != 0; }));
  int choice = 0;
  while (choice < choices - 1 && (mask[choice] == 0 || left-- > 0)) ++choice;
  return choice;
}

void QTargets(const QHead& head, const float* target_outputs, const float* online_outputs,
              const float* returns, const float* discounts, int n, float* targets,
              const std::uint8_t* next_masks) {
  if (next_masks != nullptr) {
    const float* choosing = online_outputs == nullptr ? target_outputs : online_outputs;
    for (int b = 0; b < n; ++b, target_outputs += head.outputs(), choosing += head.outputs()) {
      const int best =
          BestAllowed(head, choosing, next_masks + static_cast<std::ptrdiff_t>(b) * head.choices);
      const float q = target_outputs[best] + (head.dueling ? BaselineOf(head, target_outputs) : 0.0f);
      targets[b] = discounts[b] == 0.0f ? returns[b] : returns[b] + discounts[b] * q;
    }
    return;
  }
  const float* choosing = online_outputs != nullptr ? online_outputs : target_outputs;
  CallFor<TargetKernel>(head, target_outputs, choosing, returns, discounts, n, targets);
}

void QLoss(const QBatch& batch, const QLossRule& rule, const QHead& head, const float* outputs,
           float* d_outputs, float* errors, std::span<float> stats) {
  const float limit = rule.huber > 0 ? rule.huber : std::numeric_limits<float>::infinity();
  CallFor<LossKernel>(head, &batch, limit, rule.per_sample, outputs, d_outputs, errors, stats.data());
}

}  // namespace trireme
