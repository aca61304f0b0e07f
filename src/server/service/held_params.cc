#include "trireme/server/service/held_params.h"

#include <algorithm>
#include <chrono>

namespace trireme {

HeldParams::HeldParams(const std::string& codec, std::size_t size, std::size_t most_bytes)
    : coder_(codec, size),
      size_(size),
      most_workers_(most_bytes / (std::max<std::size_t>(size, 1) * sizeof(float))),
      last_(static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                       std::chrono::nanoseconds(1))) {}

bool HeldParams::Encode(std::uint64_t worker, std::uint64_t base, std::uint64_t number,
                        std::span<const float> params, std::span<std::byte> message) {
  const auto held = held_.find(worker);
  if (held != held_.end() && held->second.number == base &&
      coder_.Encode(params, held->second.params.span(), message)) {
    held->second.number = number;
    return true;
  }
  Hold(worker, number, params);
  return false;
}

void HeldParams::Hold(std::uint64_t worker, std::uint64_t number, std::span<const float> params) {
  auto held = held_.find(worker);
  if (held == held_.end()) {
    if (held_.size() >= most_workers_) return;
    held = held_.emplace(worker, Held{AlignedBuffer<float>(size_), 0}).first;
  }
  std::ranges::copy(params, held->second.params.begin());
  held->second.number = number;
}

}  // namespace trireme
