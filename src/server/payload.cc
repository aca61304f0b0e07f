#include "trireme/server/payload.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/server/protocol.h"

namespace trireme {

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

}  // namespace trireme
