#include "trireme/comm/mailbox.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/wait.h"

namespace trireme {

void Mailbox::Put(std::span<const float> values) {
  std::list<std::vector<float>> message;
  {
    const std::lock_guard lock(mutex_);
    if (!empty_.empty()) message.splice(message.begin(), empty_, empty_.begin());
  }
  if (message.empty()) message.emplace_back();
  message.front().assign(values.begin(), values.end());
  {
    const std::lock_guard lock(mutex_);
    full_.splice(full_.end(), message);
  }
  messages_.fetch_add(1, std::memory_order_release);
}

double Mailbox::Take(std::span<float> values, int spins, const std::atomic<bool>& aborted) {
  const double waited_s = WaitUntil(
      spins, [&] { return messages_.load(std::memory_order_acquire) > 0; },
      [&](double) {
        if (aborted.load(std::memory_order_acquire)) throw Error("another worker failed");
      });
  messages_.fetch_sub(1, std::memory_order_relaxed);
  std::list<std::vector<float>> message;
  {
    const std::lock_guard lock(mutex_);
    message.splice(message.begin(), full_, full_.begin());
  }
  TRIREME_CHECK(message.front().size() == values.size());
  std::ranges::copy(message.front(), values.begin());
  const std::lock_guard lock(mutex_);
  empty_.splice(empty_.begin(), message);
  return waited_s;
}

}  // namespace trireme
