#include "trireme/plan/timing_store.h"

#include <ctime>
#include <utility>

namespace trireme {

double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TimingStore::TimingStore(std::unique_ptr<ParameterStore> store, int parts)
    : store_(std::move(store)), parts_(parts) {
  Start();
}

void TimingStore::Start() {
  account_ = {};
  computed_s_ = 0;
  Resume();
}

void TimingStore::Pause() { computed_s_ += ThreadSeconds() - computing_since_s_; }
void TimingStore::Resume() { computing_since_s_ = ThreadSeconds(); }

double TimingStore::Push(std::span<float> gradient, const UpdateRule& rule) {
  Pause();
  account_.rounds.push_back({position_++, std::exchange(computed_s_, 0)});
  if (parts_ > 1) {
    for (float& value : gradient) value *= static_cast<float>(parts_);
  }
  const double begun_s = ThreadSeconds();
  const double norm = store_->Push(gradient, rule);
  account_.push_s += ThreadSeconds() - begun_s;
  account_.push_floats = gradient.size();
  Resume();
  return norm;
}

void TimingStore::Share(std::span<double> values) {
  Pause();
  for (double& value : values) value *= parts_;
  store_->Share(values);
  account_.shares += 1;
  account_.share_bytes += values.size_bytes();
  Resume();
}

}  // namespace trireme
