// What some messages carry as bytes: lists of ranks, what several workers brought, parameter groups.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/optim/groups.h"
#include "trireme/rpc/transport.h"

namespace trireme {

// Ranks in ascending order.
using Ranks = std::vector<std::uint32_t>;
std::string EncodeRanks(const Ranks& ranks);
// Throws Error.
Ranks DecodeRanks(std::string_view encoded);

// The bytes of several ranks, each with its rank and length.
std::string EncodeGathered(const std::map<int, std::string_view>& bytes);
// How many each of `workers` may bring so that all of them fit into a message of `limit` bytes.
std::size_t MostGathered(int workers, std::size_t limit = Limits().message);
// Throws Error.
std::map<int, std::string> DecodeGathered(std::string_view encoded);

// The groups of a push, in numbers of all parameters.
std::string EncodeGroups(const ParameterGroups& groups);
// Throws Error unless they can be groups of `params` parameters.
ParameterGroups DecodeGroups(std::string_view encoded, std::size_t params);

}  // namespace trireme
