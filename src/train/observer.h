// What a program is told of a run while it goes.
#pragma once

#include <cstdint>

#include "trireme/metrics/metric_row.h"
#include "trireme/train/evaluator.h"

namespace trireme {

struct TrainResult;

// Called in the thread that called Train, one call at a time, and the run waits meanwhile. Whatever a call
// throws ends the run and comes out of Train.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;

  // After every iteration of the worker that leads: what metrics.jsonl would hold.
  virtual void OnRow(const MetricRow& row) = 0;
  // After every evaluation, before the row it belongs to. `steps` were made so far.
  virtual void OnEvaluation(std::int64_t steps, const Evaluation& evaluation) = 0;
  // Last, also when the run was interrupted; not when it failed.
  virtual void OnEnd(const TrainResult& result) = 0;
};

// For whom the result is enough.
struct SilentObserver : TrainObserver {
  void OnRow(const MetricRow&) override {}
  void OnEvaluation(std::int64_t, const Evaluation&) override {}
  void OnEnd(const TrainResult&) override {}
};

}  // namespace trireme
