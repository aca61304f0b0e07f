#include "trireme/server/service/in_step.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/simd.h"
#include "trireme/comm/tree_sum.h"
#include "trireme/optim/clip.h"

namespace trireme {
namespace {

struct ScaleBy {
  TRIREME_INLINE void Run(float* values, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) values[i] *= factor;
  }
};

bool CutAlike(const ParameterGroups& a, const ParameterGroups& b) {
  return std::ranges::equal(a.all(), b.all(), [](const ParameterGroup& x, const ParameterGroup& y) {
    return x.begin == y.begin && x.end == y.end && x.max_norm == y.max_norm;
  });
}

// sum <- the sum of operands of this length.
template <class T>
void Sum(const std::vector<const T*>& operands, std::span<T> sum) {
  T* const to = sum.data();
  SimdCall<SumOperands<T, kMostWorkers>>(operands.data(), static_cast<int>(operands.size()), &to, 1,
                                         sum.size());
}

}  // namespace

void GradientRound::Add(int rank, const Header& request, const ParameterGroups& groups,
                        AlignedBuffer<float> gradient, Deadline now) {
  if (inputs_.empty()) {
    begun_ = now;
  } else {
    const Input& other = inputs_.begin()->second;
    if (other.gradient.size() != gradient.size()) {
      Fail("a push with {} statistics behind its gradient, where others have {}",
           gradient.size() - range_.size, other.gradient.size() - range_.size);
    }
    if (!CutAlike(other.groups, groups)) Fail("a push with other parameter groups than the others have");
  }
  inputs_.insert_or_assign(rank, Input{request, groups, std::move(gradient)});
  sum_.ranks.clear();
}

Ranks GradientRound::Present(const Ranks& among) const {
  Ranks present;
  for (const std::uint32_t rank : among) {
    if (Has(static_cast<int>(rank))) present.push_back(rank);
  }
  return present;
}

const GradientRound::Sum& GradientRound::SumOf(const Ranks& ranks) {
  TRIREME_CHECK(!ranks.empty());
  if (sum_.ranks == ranks) return sum_;
  std::vector<const float*> operands;
  for (const std::uint32_t rank : ranks)
    operands.push_back(inputs_.at(static_cast<int>(rank)).gradient.data());
  const std::size_t size = inputs_.begin()->second.gradient.size();
  if (sum_.values.size() != size) sum_.values = AlignedBuffer<float>(size);
  trireme::Sum(operands, sum_.values.span());
  const int present = static_cast<int>(ranks.size());
  if (present < workers_) {
    SimdCall<ScaleBy>(sum_.values.data(), size, static_cast<float>(workers_) / static_cast<float>(present));
  }
  const ParameterGroups& groups = GroupsOf(static_cast<int>(ranks.front()));
  sum_.squares.resize(GroupNorms::Segments(groups, range_.begin, range_.begin + range_.size));
  GroupNorms::SquaredNorms(groups, range_.begin, sum_.values.span().first(range_.size), sum_.squares);
  sum_.ranks = ranks;
  return sum_;
}

double GradientRound::Sum::norm() const {
  double sum = 0;
  for (const double block : squares) sum += block;
  return std::sqrt(sum);
}

Collected Combine(const std::map<int, CollectInput>& inputs, Collective operation, int root) {
  if (operation == Collective::kGather) {
    std::map<int, std::string_view> bytes;
    for (const auto& [rank, input] : inputs) bytes[rank] = input.bytes;
    return {{}, EncodeGathered(bytes)};
  }
  const CollectInput& of_root = inputs.at(root);
  if (operation == Collective::kFirst) return {of_root.doubles, of_root.bytes};
  std::vector<const double*> operands;
  operands.reserve(inputs.size());
  for (const auto& [rank, input] : inputs) operands.push_back(input.doubles.data());
  Collected sum{std::vector<double>(of_root.doubles.size()), {}};
  Sum(operands, std::span(sum.doubles));
  return sum;
}

}  // namespace trireme
