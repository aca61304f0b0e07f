// Groups of parameters with a step size, and if wanted a norm, of their own: so that several networks live in
// one flat buffer and are trained alike by every store.
//
// What an update does to a parameter:
//   - in a group: the group's learning rate. 0 leaves it untouched, the optimizer's moments with it;
//   - in no group: the rule's learning rate (with a rate of 0 its moments still move).
// By what its gradient is scaled before:
//   - in a group with max_norm > 0: so that the norm of the group's gradient does not exceed max_norm;
//   - otherwise: so that the common norm does not exceed that of the rule. The common norm is that of all
//     parameters but those of groups with a norm of their own; those of rate 0 count.
//
// The optimizer counts updates once for all groups, which may be cut anew in every update. So Adam's corrections
// for its first steps are those of the buffer, also for a group that was left untouched: one that is so from
// the start and moves much later takes steps of up to 6.6 times its rate at first (beta1 0.9, beta2 0.999).
// PyTorch keeps a count for each parameter: an untouched one (no gradient) does not count, and one of rate 0
// counts with its moments. A rate of 1e-30 does the latter here, and is the way to freeze a group for long;
// 0 is for a group whose turn comes only every few updates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "trireme/base/error.h"

namespace trireme {

// Parameters [begin, end).
struct ParameterGroup {
  std::size_t begin = 0, end = 0;
  float learning_rate = 0;
  double max_norm = 0;  // 0: the common norm counts

  bool has_norm() const { return max_norm > 0; }
  bool operator==(const ParameterGroup&) const = default;
};

// A short list of things with begin and end, held in place. Those of an update are in ascending order and do
// not overlap: see InOrder().
template <class Group>
class GroupList {
 public:
  static constexpr std::size_t kMost = 8;

  std::span<const Group> all() const { return {groups_.data(), size_}; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Group& operator[](std::size_t i) const { return groups_[i]; }
  void Append(const Group& group) {
    TRIREME_CHECK(size_ < kMost);
    groups_[size_++] = group;
  }

 protected:
  std::array<Group, kMost> groups_ = {};
  std::size_t size_ = 0;
};

template <class Group>
bool InOrder(std::span<const Group> groups) {
  std::size_t end = 0;
  for (const Group& group : groups) {
    if (group.begin < end || group.end <= group.begin) return false;
    end = group.end;
  }
  return true;
}

class ParameterGroups : public GroupList<ParameterGroup> {
 public:
  ParameterGroups() = default;
  ParameterGroups(std::initializer_list<ParameterGroup> groups) {
    for (const ParameterGroup& group : groups) Add(group);
  }

  // Puts the group where it belongs. Requires one that makes sense and does not overlap others.
  void Add(const ParameterGroup& group);
  bool any_norm() const { return std::ranges::any_of(all(), &ParameterGroup::has_norm); }
};

// Why these groups, which somebody else has sent, cannot be those of `params` parameters; nullptr: they can.
const char* WrongGroups(std::span<const ParameterGroup> groups, std::size_t params);

// Calls apply(first, last, group) for the runs of [begin, end), in order, whose parameters belong together;
// group is nullptr where there is none. Requires groups in ascending order that do not overlap.
template <class Group, class Apply>
void ForEachGroup(std::size_t begin, std::size_t end, std::span<const Group> groups, Apply&& apply) {
  for (const Group& group : groups) {
    if (begin == end) return;
    const std::size_t first = std::clamp<std::size_t>(group.begin, begin, end);
    const std::size_t last = std::clamp<std::size_t>(group.end, first, end);
    if (begin < first && first < last) apply(begin, first, static_cast<const Group*>(nullptr));
    if (first < last) {
      apply(first, last, &group);
      begin = last;
    }
  }
  if (begin < end) apply(begin, end, static_cast<const Group*>(nullptr));
}

// Calls apply(first, last, learning_rate) for the runs of [begin, end) that are not left untouched.
template <class Group, class Apply>
void ForEachRate(std::size_t begin, std::size_t end, float learning_rate, std::span<const Group> groups,
                 Apply&& apply) {
  ForEachGroup(begin, end, groups, [&](std::size_t first, std::size_t last, const Group* group) {
    if (group == nullptr) {
      apply(first, last, learning_rate);
    } else if (group->learning_rate != 0) {
      apply(first, last, group->learning_rate);
    }
  });
}

}  // namespace trireme
