#include "trireme/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

using Floats = float __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(32)));

// Element i goes to lane i % 16. A square of floats is exact in double, so only the sixteen running sums
// round, each in the order of its elements, and a fused multiply-add gives the same bits.
struct SquaredNormKernel {
  static constexpr std::size_t kLanes = 16;

  [[gnu::always_inline]] static inline void Add(Doubles* sums, const float* x) {
    for (int k = 0; k < 4; ++k) {
      Floats f;
      std::memcpy(&f, x + 4 * k, sizeof f);
      const Doubles d = __builtin_convertvector(f, Doubles);
      sums[k] += d * d;
    }
  }

  [[gnu::always_inline]] static inline double Run(const float* x, std::size_t n) {
    Doubles sums[4] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Add(sums, x + i);
    if (i < n) {
      float rest[kLanes] = {};
      std::memcpy(rest, x + i, (n - i) * sizeof(float));
      Add(sums, rest);
    }
    const Doubles total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return (total[0] + total[1]) + (total[2] + total[3]);
  }
};

struct ScaleKernel {
  [[gnu::always_inline]] static inline void Run(float* x, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
  }
};

}  // namespace

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kNormBlock) {
    const std::size_t size = std::min(kNormBlock, values.size() - begin);
    sum += SimdCall<SquaredNormKernel>(values.data() + begin, size);
  }
  return sum;
}

float ClipScale(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

double ClipByGlobalNorm(std::span<float> gradient, double max_norm) {
  TRIREME_CHECK(max_norm > 0);
  const double norm = std::sqrt(SquaredNorm(gradient));
  if (std::isfinite(norm) && norm > max_norm) {
    SimdCall<ScaleKernel>(gradient.data(), gradient.size(), ClipScale(norm, max_norm));
  }
  return norm;
}

namespace {

// Groups with a norm of their own.
struct NormGroup {
  std::size_t begin = 0, end = 0, index = 0;
};

// Calls visit(first, last, norm) for the segments of [begin, end); norm is the number of a group, or kMost for
// the common norm.
template <class Visit>
void ForEachSegment(const ParameterGroups& groups, std::size_t begin, std::size_t end, Visit&& visit) {
  GroupList<NormGroup> own;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].has_norm()) own.Append({groups[i].begin, groups[i].end, i});
  }
  ForEachGroup(begin, end, own.all(), [&](std::size_t first, std::size_t last, const NormGroup* group) {
    for (std::size_t next = 0; first < last; first = next) {
      next = std::min(last, (first / kNormBlock + 1) * kNormBlock);
      visit(first, next, group == nullptr ? ParameterGroups::kMost : group->index);
    }
  });
}

}  // namespace

std::vector<GroupNorms::Segment> GroupNorms::SegmentsOf(const ParameterGroups& groups, std::size_t size) {
  std::vector<Segment> segments;
  ForEachSegment(groups, 0, size, [&](std::size_t begin, std::size_t end, std::size_t) {
    segments.push_back({begin, end});
  });
  return segments;
}

std::size_t GroupNorms::Segments(const ParameterGroups& groups, std::size_t begin, std::size_t end) {
  std::size_t count = 0;
  ForEachSegment(groups, begin, end, [&](std::size_t, std::size_t, std::size_t) { ++count; });
  return count;
}

void GroupNorms::SquaredNorms(const ParameterGroups& groups, std::size_t begin, std::span<const float> values,
                              std::span<double> sums) {
  TRIREME_CHECK(sums.size() == Segments(groups, begin, begin + values.size()));
  std::size_t s = 0;
  ForEachSegment(groups, begin, begin + values.size(), [&](std::size_t first, std::size_t last, std::size_t) {
    sums[s++] = SquaredNorm(values.subspan(first - begin, last - first));
  });
}

void GroupNorms::Add(std::size_t begin, std::size_t end, std::span<const double> sums) {
  TRIREME_CHECK(sums.size() == Segments(groups_, begin, end));
  std::size_t s = 0;
  ForEachSegment(groups_, begin, end,
                 [&](std::size_t, std::size_t, std::size_t norm) { Count(norm, sums[s++]); });
}

void GroupNorms::Add(std::size_t begin, std::span<const float> values) {
  ForEachSegment(groups_, begin, begin + values.size(),
                 [&](std::size_t first, std::size_t last, std::size_t norm) {
                   Count(norm, SquaredNorm(values.subspan(first - begin, last - first)));
                 });
}

double GroupNorms::norm() const { return std::sqrt(squares_[kAll]); }

GroupNorms::Scales GroupNorms::ScalesFor(double max_norm) const {
  Scales scales;
  scales.values[0] = ClipScale(std::sqrt(squares_[kCommon]), max_norm);
  scales.count = 1 + groups_.size();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    scales.values[1 + i] =
        groups_[i].has_norm() ? ClipScale(std::sqrt(squares_[i]), groups_[i].max_norm) : scales.common();
  }
  return scales;
}

double ClipGradient(std::span<float> gradient, double max_norm, const ParameterGroups& groups) {
  TRIREME_CHECK(groups.empty() || groups.all().back().end <= gradient.size());
  if (!groups.any_norm()) {
    return max_norm > 0 ? ClipByGlobalNorm(gradient, max_norm) : std::sqrt(SquaredNorm(gradient));
  }
  GroupNorms norms(groups);
  norms.Add(gradient);
  return ClipGradient(gradient, max_norm, groups, norms);
}

double ClipGradient(std::span<float> gradient, double max_norm, const ParameterGroups& groups,
                    const GroupNorms& norms) {
  if (!std::isfinite(norms.norm())) return norms.norm();
  const GroupNorms::Scales scales = norms.ScalesFor(max_norm);
  ForEachGroup(0, gradient.size(), groups.all(),
               [&](std::size_t first, std::size_t last, const ParameterGroup* group) {
                 const float scale =
                     group == nullptr ? scales.common() : scales.of_group(group - groups.all().data());
                 if (scale != 1) SimdCall<ScaleKernel>(gradient.data() + first, last - first, scale);
               });
  return norms.norm();
}

}  // namespace trireme
