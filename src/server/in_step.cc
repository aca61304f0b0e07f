#include "trireme/server/in_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/simd.h"
#include "trireme/optim/clip.h"

namespace trireme {
namespace {

template <class T>
struct AddTo {
  TRIREME_INLINE void Run(T* sum, const T* a, const T* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  }
};
struct ScaleBy {
  TRIREME_INLINE void Run(float* values, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) values[i] *= factor;
  }
};

// sum <- the sum of operands of this length, adjacent pairs first. Operands are left as they are; what is
// added goes block by block through memory that stays in the cache.
template <class T>
void TreeSum(const std::vector<const T*>& operands, std::span<T> sum) {
  constexpr std::size_t kBlock = 1024;
  const std::size_t count = operands.size(), pairs = (count + 1) / 2;
  std::vector<T> sums(pairs * kBlock);
  for (std::size_t begin = 0; begin < sum.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, sum.size() - begin);
    const auto of_pair = [&](std::size_t pair) { return sums.data() + pair * kBlock; };
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const T* const a = operands[2 * pair] + begin;
      if (2 * pair + 1 == count) {
        std::copy_n(a, n, of_pair(pair));
      } else {
        SimdCall<AddTo<T>>(of_pair(pair), a, operands[2 * pair + 1] + begin, n);
      }
    }
    for (std::size_t stride = 1; stride < pairs; stride *= 2) {
      for (std::size_t pair = 0; pair + stride < pairs; pair += 2 * stride) {
        SimdCall<AddTo<T>>(of_pair(pair), static_cast<const T*>(of_pair(pair)),
                           static_cast<const T*>(of_pair(pair + stride)), n);
      }
    }
    std::copy_n(of_pair(0), n, sum.data() + begin);
  }
}

}  // namespace

std::string EncodeRanks(const Ranks& ranks) {
  return {reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Ranks::value_type)};
}

Ranks DecodeRanks(std::string_view encoded) {
  Ranks ranks(encoded.size() / sizeof(Ranks::value_type));
  if (!ranks.empty()) std::memcpy(ranks.data(), encoded.data(), ranks.size() * sizeof(Ranks::value_type));
  if (encoded.size() % sizeof(Ranks::value_type) != 0 || ranks.size() > kMostWorkers ||
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end() ||
      (!ranks.empty() && ranks.back() >= kMostWorkers)) {
    Fail("a list of ranks makes no sense");
  }
  return ranks;
}

void GradientRound::Add(int rank, const Header& request, AlignedBuffer<float> gradient, Deadline now) {
  if (inputs_.empty()) begun_ = now;
  if (!inputs_.empty() && inputs_.begin()->second.gradient.size() != gradient.size()) {
    Fail("a push with {} statistics behind its gradient, where others have {}", gradient.size() - params_,
         inputs_.begin()->second.gradient.size() - params_);
  }
  inputs_.insert_or_assign(rank, Input{request, std::move(gradient)});
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
  TreeSum(operands, sum_.values.span());
  const int present = static_cast<int>(ranks.size());
  if (present < workers_) {
    SimdCall<ScaleBy>(sum_.values.data(), size, static_cast<float>(workers_) / static_cast<float>(present));
  }
  sum_.squares.resize(NormBlocks(params_));
  SquaredNorms(sum_.values.span().first(params_), sum_.squares);
  sum_.ranks = ranks;
  return sum_;
}

double GradientRound::Sum::norm() const {
  double sum = 0;
  for (const double block : squares) sum += block;
  return std::sqrt(sum);
}

Collected Combine(const std::map<int, CollectInput>& inputs, Collective operation, int root) {
  if (operation == Collective::kGather) return {{}, EncodeGathered(inputs)};
  const CollectInput& of_root = inputs.at(root);
  if (operation == Collective::kFirst) return {of_root.doubles, of_root.bytes};
  std::vector<const double*> operands;
  operands.reserve(inputs.size());
  for (const auto& [rank, input] : inputs) operands.push_back(input.doubles.data());
  Collected sum{std::vector<double>(of_root.doubles.size()), {}};
  TreeSum(operands, std::span(sum.doubles));
  return sum;
}

std::string EncodeGathered(const std::map<int, CollectInput>& inputs) {
  std::string encoded;
  const auto append = [&](std::uint64_t value) {
    encoded.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const auto& [rank, input] : inputs) {
    append(static_cast<std::uint64_t>(rank));
    append(input.bytes.size());
    encoded += input.bytes;
  }
  return encoded;
}

std::map<int, std::string> DecodeGathered(std::string_view encoded) {
  std::map<int, std::string> inputs;
  while (!encoded.empty()) {
    std::uint64_t head[2];
    if (encoded.size() < sizeof head) Fail("a gathered message is cut off");
    std::memcpy(head, encoded.data(), sizeof head);
    encoded.remove_prefix(sizeof head);
    if (head[0] >= kMostWorkers || head[1] > encoded.size()) Fail("a gathered message is damaged");
    inputs[static_cast<int>(head[0])] = encoded.substr(0, head[1]);
    encoded.remove_prefix(head[1]);
  }
  return inputs;
}

}  // namespace trireme
