#include "trireme/env/plugin/buffers.h"

#include <array>
#include <cstring>

namespace trireme {
namespace {

constexpr std::size_t kGuard = AlignedBuffer<std::byte>::kAlignment;  // at least; up to twice
constexpr int kGuardByte = 0xA5;
constexpr auto kGuardBytes = [] {
  std::array<unsigned char, 2 * kGuard> bytes{};
  bytes.fill(kGuardByte);
  return bytes;
}();
constexpr const char* kNames[] = {"obs", "masks", "rewards", "terminated", "truncated"};

}  // namespace

GuardedBuffers::GuardedBuffers(const EnvSpec& spec, std::size_t copies)
    : copies_(copies),
      bytes_{copies * spec.obs.bytes(),
             spec.masks ? copies * static_cast<std::size_t>(spec.action.choices()) : 0,
             copies * sizeof(float), copies, copies} {
  std::size_t end = 0;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    begin_[i] = (end + kGuard + kGuard - 1) / kGuard * kGuard;
    end = begin_[i] + bytes_[i];
  }
  begin_[kBuffers] = (end + kGuard + kGuard - 1) / kGuard * kGuard;
  memory_ = AlignedBuffer<std::byte>(begin_[kBuffers], AlignedBuffer<std::byte>::kUninitialised);
  std::memset(memory_.data(), kGuardByte, memory_.size());
  view_ = {.obs = memory_.data() + begin_[0],
           .masks = spec.masks ? reinterpret_cast<std::uint8_t*>(memory_.data() + begin_[1]) : nullptr,
           .rewards = reinterpret_cast<float*>(memory_.data() + begin_[2]),
           .terminated = reinterpret_cast<std::uint8_t*>(memory_.data() + begin_[3]),
           .truncated = reinterpret_cast<std::uint8_t*>(memory_.data() + begin_[4])};
  ForgetRows(spec.obs.type);
  ClearStep();
}

const char* GuardedBuffers::Damage() const {
  std::size_t end = 0;
  for (std::size_t i = 0; i <= kBuffers; ++i) {
    if (std::memcmp(memory_.data() + end, kGuardBytes.data(), begin_[i] - end) != 0) {
      return kNames[i == 0 ? 0 : i - 1];
    }
    if (i < kBuffers) end = begin_[i] + bytes_[i];
  }
  return nullptr;
}

void GuardedBuffers::ForgetRows(ObsType type) {
  // Four bytes of 0xFF are a float that is no number.
  if (type == ObsType::kFloat32) std::memset(view_.obs, 0xFF, bytes_[0]);
  if (bytes_[1] > 0) std::memset(view_.masks, 0xFF, bytes_[1]);
}

void GuardedBuffers::ClearStep() {
  std::memset(view_.rewards, 0, bytes_[2]);
  std::memset(view_.terminated, 0, bytes_[3]);
  std::memset(view_.truncated, 0, bytes_[4]);
}

}  // namespace trireme
