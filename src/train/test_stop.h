// Stops a run after its first row, in which its evaluation is.
#pragma once

#include <atomic>

#include "trireme/train/trainer.h"

namespace trireme {

struct StopAfterRow final : SilentObserver {
  void OnRow(const MetricRow&) override { stop = true; }

  std::atomic<bool> stop{false};
};

inline TrainResult TrainOneIteration(const RunSettings& settings, const RunFolder& folder) {
  StopAfterRow observer;
  return Train(settings, folder, {.observer = &observer, .json = true, .stop = &observer.stop});
}

}  // namespace trireme
