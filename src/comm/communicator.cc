#include "trireme/comm/communicator.h"

#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/pack.h"

namespace trireme {

std::string Pack(std::vector<std::string> parts) {
  std::size_t size = 0;
  for (const std::string& part : parts) size += sizeof(std::uint64_t) + part.size();
  std::string packed;
  packed.reserve(size);
  for (std::string& part : parts) {
    const std::uint64_t length = part.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(part);
    part = {};
  }
  return packed;
}

void Unpack(std::string_view packed, std::vector<std::string>& parts) {
  while (!packed.empty()) {
    std::uint64_t length = 0;
    TRIREME_CHECK(packed.size() >= sizeof(length));
    std::memcpy(&length, packed.data(), sizeof(length));
    packed.remove_prefix(sizeof(length));
    TRIREME_CHECK(packed.size() >= length);
    parts.emplace_back(packed.substr(0, length));
    packed.remove_prefix(length);
  }
}

std::vector<std::string> Communicator::AllGather(std::string bytes) {
  std::string packed = Pack(Gather(std::move(bytes)));
  Broadcast(packed);
  std::vector<std::string> all;
  Unpack(packed, all);
  return all;
}

}  // namespace trireme
