#include "trireme/optim/groups.h"

#include <cmath>
#include <limits>

namespace trireme {

void ParameterGroups::Add(const ParameterGroup& group) {
  Append(group);
  std::ranges::sort(groups_.begin(), groups_.begin() + size_, {}, &ParameterGroup::begin);
  TRIREME_CHECK(WrongGroups(all(), std::numeric_limits<std::size_t>::max()) == nullptr);
}

const char* WrongGroups(std::span<const ParameterGroup> groups, std::size_t params) {
  if (groups.size() > ParameterGroups::kMost) return "there are more than 8";
  if (!InOrder(groups)) return "they overlap, are empty or are not in order";
  if (!groups.empty() && groups.back().end > params) return "they reach beyond the parameters";
  for (const ParameterGroup& group : groups) {
    if (!std::isfinite(group.learning_rate)) return "a learning rate is not finite";
    if (!std::isfinite(group.max_norm) || group.max_norm < 0) return "a norm is not finite, or negative";
  }
  return nullptr;
}

}  // namespace trireme
