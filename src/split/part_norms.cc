#include "trireme/split/part_norms.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

bool SameRanges(const ParameterGroups& a, const ParameterGroups& b) {
  return std::ranges::equal(a.all(), b.all(), [](const ParameterGroup& x, const ParameterGroup& y) {
    return x.begin == y.begin && x.end == y.end && x.has_norm() == y.has_norm();
  });
}

}  // namespace

PartNorms::PartNorms(const NetworkShare& share) : share_(share) {
  const NetworkParts& parts = share.parts();
  by_blocks_ = true;
  for (int member = 0; member < parts.members(); ++member) {
    by_blocks_ &= std::ranges::all_of(parts.tensors(member), &NetworkParts::Tensor::complete);
  }
  if (by_blocks_) FindRuns();
}

// A tensor with the zeros behind it.
void PartNorms::FindRuns() {
  const NetworkParts& parts = share_.parts();
  const auto& all = parts.whole().layout().tensors();
  const auto end_of = [&](std::size_t i) {
    return i + 1 < all.size() ? all[i + 1].offset : parts.whole().layout().size();
  };
  for (int member = 0; member < parts.members(); ++member) {
    const auto& held = parts.held(member).layout().tensors();
    for (std::size_t i = 0; i < held.size(); ++i) {
      const NetworkParts::Tensor& tensor = parts.tensors(member)[i];
      if (tensor.counts) {
        runs_.push_back({all[tensor.whole].offset, end_of(tensor.whole), held[i].offset, member});
      }
    }
  }
  std::ranges::sort(runs_, {}, &Run::begin);
  std::vector<Run> merged;
  for (const Run& run : runs_) {
    if (!merged.empty() && merged.back().member == run.member &&
        merged.back().part + (merged.back().end - merged.back().begin) == run.part) {
      merged.back().end = run.end;
    } else {
      merged.push_back(run);
    }
  }
  runs_ = std::move(merged);
}

const GroupNorms& PartNorms::Measure(std::span<const float> gradient, const ParameterGroups& groups) {
  by_blocks_ ? MeasureByBlocks(gradient, groups) : MeasureOwn(gradient, groups);
  return *norms_;
}

void PartNorms::MeasureOwn(std::span<const float> gradient, const ParameterGroups& groups) {
  norms_.emplace(groups);
  const auto& held = share_.network().layout().tensors();
  const auto& tensors = share_.parts().tensors(share_.member());
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (tensors[i].counts) norms_->Add(held[i].offset, gradient.subspan(held[i].offset, held[i].size));
  }
  share_.group().AllReduceSum(norms_->sums());
}

// Where towers and free vectors begin and end, here and in the whole network.
ParameterGroups PartNorms::InWhole(const ParameterGroups& groups) const {
  const Network &part = share_.network(), &whole = share_.parts().whole();
  const auto in_whole = [&](std::size_t at) {
    for (std::size_t t = 0; t < part.spec().towers.size(); ++t) {
      if (at == part.TowerRange(t).begin) return whole.TowerRange(t).begin;
      if (at == part.TowerRange(t).end) return whole.TowerRange(t).end;
    }
    for (std::size_t i = 0; i < part.spec().free_vectors.size(); ++i) {
      if (at == part.FreeOffset(i)) return whole.FreeOffset(i);
    }
    TRIREME_CHECK(at == part.param_count());
    return whole.param_count();
  };
  ParameterGroups mapped;
  for (ParameterGroup group : groups.all()) {
    group.begin = in_whole(group.begin);
    group.end = in_whole(group.end);
    mapped.Add(group);
  }
  return mapped;
}

void PartNorms::FindSegments(const ParameterGroups& groups) {
  const std::size_t size = share_.whole_size();
  segments_.clear();
  for (const auto& [begin, end] : GroupNorms::SegmentsOf(groups, size)) {
    const auto after = std::ranges::upper_bound(runs_, begin, {}, &Run::begin);
    TRIREME_CHECK(after != runs_.begin());
    const Run& run = *std::prev(after);
    segments_.push_back({begin, end, run.end >= end ? &run : nullptr, 0});
  }
  std::size_t values = segments_.size();
  for (Segment& segment : segments_) {
    if (segment.run != nullptr) continue;
    segment.values = values;
    values += segment.end - segment.begin;
  }
  exchanged_.resize(values);
}

void PartNorms::MeasureByBlocks(std::span<const float> gradient, const ParameterGroups& groups) {
  const ParameterGroups in_whole = InWhole(groups);
  if (!groups_ || !SameRanges(*groups_, in_whole)) FindSegments(in_whole);
  groups_ = in_whole;
  const int own = share_.member();
  std::ranges::fill(exchanged_, 0.0);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto& [begin, end, run, values] = segments_[i];
    if (run != nullptr) {
      if (run->member == own) {
        exchanged_[i] = SquaredNorm(gradient.subspan(run->part + (begin - run->begin), end - begin));
      }
      continue;
    }
    for (const Run& some : runs_) {
      if (some.member != own || some.end <= begin || some.begin >= end) continue;
      for (std::size_t at = std::max(begin, some.begin); at < std::min(end, some.end); ++at) {
        exchanged_[values + (at - begin)] = gradient[some.part + (at - some.begin)];
      }
    }
  }
  share_.group().AllReduceSum(std::span<double>(exchanged_));
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto& [begin, end, run, values] = segments_[i];
    if (run != nullptr) continue;
    float block[kNormBlock];
    for (std::size_t j = 0; j < end - begin; ++j) block[j] = static_cast<float>(exchanged_[values + j]);
    exchanged_[i] = SquaredNorm({block, end - begin});
  }
  norms_.emplace(in_whole);
  norms_->Add(0, share_.whole_size(), std::span(exchanged_).first(segments_.size()));
}

}  // namespace trireme
