#include "trireme/server/payload.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/server/protocol.h"

namespace trireme {
namespace {

// A group on the wire.
struct WireGroup {
  std::uint64_t begin, end;
  double max_norm;
  float learning_rate;
  std::uint32_t zero;
};
static_assert(sizeof(WireGroup) == 32);

constexpr std::size_t kGatheredHead = 2 * sizeof(std::uint64_t);  // of each rank: itself, and a length

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

std::string EncodeGathered(const std::map<int, std::string_view>& bytes) {
  std::string encoded;
  const auto append = [&](std::uint64_t value) {
    encoded.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const auto& [rank, brought] : bytes) {
    append(static_cast<std::uint64_t>(rank));
    append(brought.size());
    encoded += brought;
  }
  return encoded;
}

std::size_t MostGathered(int workers, std::size_t limit) {
  return (limit - sizeof(Header)) / static_cast<std::size_t>(workers) - kGatheredHead;
}

std::map<int, std::string> DecodeGathered(std::string_view encoded) {
  std::map<int, std::string> bytes;
  while (!encoded.empty()) {
    std::uint64_t head[2];
    if (encoded.size() < sizeof head) Fail("a gathered message is cut off");
    std::memcpy(head, encoded.data(), sizeof head);
    encoded.remove_prefix(sizeof head);
    if (head[0] >= kMostWorkers || head[1] > encoded.size()) Fail("a gathered message is damaged");
    bytes[static_cast<int>(head[0])] = encoded.substr(0, head[1]);
    encoded.remove_prefix(head[1]);
  }
  return bytes;
}

std::string EncodeGroups(const ParameterGroups& groups) {
  std::string encoded;
  for (const ParameterGroup& group : groups.all()) {
    const WireGroup wire = {group.begin, group.end, group.max_norm, group.learning_rate, 0};
    encoded.append(reinterpret_cast<const char*>(&wire), sizeof wire);
  }
  return encoded;
}

ParameterGroups DecodeGroups(std::string_view encoded, std::size_t params) {
  if (encoded.size() % sizeof(WireGroup) != 0 ||
      encoded.size() / sizeof(WireGroup) > ParameterGroups::kMost) {
    Fail("{} bytes of parameter groups, where a group has {} and there are at most {}", encoded.size(),
         sizeof(WireGroup), ParameterGroups::kMost);
  }
  std::vector<ParameterGroup> groups;
  for (; !encoded.empty(); encoded.remove_prefix(sizeof(WireGroup))) {
    WireGroup wire;
    std::memcpy(&wire, encoded.data(), sizeof wire);
    groups.push_back({wire.begin, wire.end, wire.learning_rate, wire.max_norm});
  }
  if (const char* const why = WrongGroups(groups, params)) Fail("parameter groups make no sense: {}", why);
  ParameterGroups checked;
  for (const ParameterGroup& group : groups) checked.Append(group);
  return checked;
}

}  // namespace trireme
