#include "trireme/env/host/patience.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/env/host/layout.h"

namespace trireme {

double HostPatience::LimitOf(HostWork work) const {
  const double limit_s = timeout_s_ == 0           ? 0
                         : work == HostWork::kStep ? timeout_s_
                                                   : std::max(timeout_s_, kLeastForMaking);
  if (!StopRequested()) return limit_s;
  return limit_s == 0 ? kOnceStopped : std::min(limit_s, kOnceStopped);
}

std::string HostPatience::Describe(HostWork work) const {
  const double limit_s = LimitOf(work);
  if (limit_s == timeout_s_) return fmt::format("{} s (env_timeout_s)", limit_s);
  const char* const why = StopRequested() ? "the run was asked to end"
                                          : "the least for starting a process and making environments";
  return fmt::format("{} s ({}; env_timeout_s is {})", limit_s, why, timeout_s_);
}

void HostPatience::SetStop(std::function<bool()> stop) {
  const std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
}

bool HostPatience::StopRequested() const {
  const std::lock_guard lock(mutex_);
  return stop_ && stop_();
}

HostWork HostWait::WorkOf(std::uint32_t serving) const {
  if (serving == kHostAnswering) return answering_;
  return serving == 0 ? idle_ : HostWork::kStep;
}

bool HostWait::IsOver(const HostProgress& progress, double seconds) {
  if (progress != last_) waited_s_ = 0;
  last_ = progress;
  waited_s_ += std::min(seconds, 4 * kSlice);
  const double limit_s = patience_.LimitOf(work());
  return limit_s > 0 && waited_s_ > limit_s;
}

}  // namespace trireme
