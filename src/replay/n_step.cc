#include "trireme/replay/n_step.h"

#include <array>

#include "trireme/base/error.h"

namespace trireme {

NStep::NStep(int envs, int n, double gamma, int obs_width, int action_size)
    : n_(n),
      gamma_(gamma),
      obs_width_(static_cast<std::size_t>(obs_width)),
      action_size_(static_cast<std::size_t>(action_size)) {
  TRIREME_CHECK(envs > 0 && n > 0 && obs_width > 0 && action_size > 0);
  TRIREME_CHECK(gamma >= 0 && gamma <= 1);
  double power = 1;
  for (int k = 0; k <= n; ++k, power *= gamma) discounts_.push_back(static_cast<float>(power));
  windows_.resize(static_cast<std::size_t>(envs));
  if (n == 1) return;
  const std::size_t rows = windows_.size() * static_cast<std::size_t>(n);
  obs_ = AlignedBuffer<float>(rows * obs_width_);
  actions_ = AlignedBuffer<float>(rows * action_size_);
  rewards_ = AlignedBuffer<float>(rows);
}

float NStep::Return(int env, const Window& window) const {
  double sum = 0;
  for (int i = window.count; i-- > 0;) {
    const int step = window.first + i;
    sum = rewards_[Row(env, step < n_ ? step : step - n_)] + gamma_ * sum;
  }
  return static_cast<float>(sum);
}

void NStep::Save(StateWriter& out, const std::string& scope) const {
  const std::array<std::uint64_t, 4> shape = {windows_.size(), static_cast<std::uint64_t>(n_), obs_width_,
                                              action_size_};
  out.Put<std::uint64_t>(scope + "/shape", shape);
  out.Put<Window>(scope + "/windows", windows_);
  out.Put<float>(scope + "/obs", obs_.span());
  out.Put<float>(scope + "/actions", actions_.span());
  out.Put<float>(scope + "/rewards", rewards_.span());
}

void NStep::Load(const StateReader& in, const std::string& scope) {
  std::array<std::uint64_t, 4> shape{};
  in.Get<std::uint64_t>(scope + "/shape", shape);
  if (shape[0] != windows_.size() || shape[1] != static_cast<std::uint64_t>(n_) || shape[2] != obs_width_ ||
      shape[3] != action_size_) {
    Fail(
        "the saved steps are those of {} environments, {} steps to a transition, {} observed numbers and {} "
        "of actions; this run needs {}, {}, {} and {}",
        shape[0], shape[1], shape[2], shape[3], windows_.size(), n_, obs_width_, action_size_);
  }
  std::vector<Window> windows(windows_.size());
  in.Get<Window>(scope + "/windows", windows);
  for (const Window& window : windows) {
    if (window.first < 0 || window.first >= n_ || window.count < 0 || window.count >= n_) {
      Fail("the saved state '{}' is damaged: {} steps pending from {} in a window of {}", scope, window.count,
           window.first, n_);
    }
  }
  in.Get<float>(scope + "/obs", obs_.span());
  in.Get<float>(scope + "/actions", actions_.span());
  in.Get<float>(scope + "/rewards", rewards_.span());
  windows_ = windows;
}

}  // namespace trireme
