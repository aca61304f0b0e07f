// The buffers a plug-in writes to (trireme_buffers), with guards between them: what is written beside one is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/base/aligned.h"
#include "trireme/env/spec.h"
#include "trireme/env_plugin.h"

namespace trireme {

class GuardedBuffers {
 public:
  GuardedBuffers(const EnvSpec& spec, std::size_t copies);

  const trireme_buffers& view() const { return view_; }
  std::span<std::byte> obs() const { return {static_cast<std::byte*>(view_.obs), bytes_[0]}; }
  std::span<std::uint8_t> masks() const { return {view_.masks, bytes_[1]}; }
  std::span<float> rewards() const { return {view_.rewards, copies_}; }
  std::span<std::uint8_t> terminated() const { return {view_.terminated, copies_}; }
  std::span<std::uint8_t> truncated() const { return {view_.truncated, copies_}; }

  // Before or behind which buffer something was written ("rewards"); null where nothing was.
  const char* Damage() const;

  // Until they are written to, observations are no numbers and masks neither 0 nor 1.
  void ForgetRows(ObsType type);
  // Rewards and flags are 0.
  void ClearStep();

 private:
  static constexpr std::size_t kBuffers = 5;
  std::size_t copies_;
  std::size_t bytes_[kBuffers];      // of each buffer
  std::size_t begin_[kBuffers + 1];  // of each in memory_; the last is its end
  AlignedBuffer<std::byte> memory_;  // guard, buffer, guard, buffer, ..., guard
  trireme_buffers view_ = {};
};

}  // namespace trireme
