// What only the leader of a run has: its files, and the line a person watches.
#pragma once

#include "metrics/jsonl.h"
#include "metrics/progress.h"
#include "metrics/tensorboard.h"
#include "train/run_folder.h"
#include "train/run_state.h"

namespace trireme {

class Chronicle {
 public:
  Chronicle(const RunFolder& folder, const RunProgress& progress, bool json)
      : jsonl_(folder.metrics(), progress.metrics_offset),
        tensorboard_(folder.path(), progress.steps),
        printer_(2, ChooseProgressStyle(2, json)) {}

  void Append(const MetricRow& row) {
    jsonl_.Append(row);
    tensorboard_.Append(row);
  }
  // Bytes of metrics.jsonl, which are on disk when this returns.
  std::uint64_t Flush() {
    jsonl_.Flush();
    return jsonl_.Offset();
  }
  ProgressPrinter& printer() { return printer_; }

 private:
  JsonlWriter jsonl_;
  TensorBoardWriter tensorboard_;
  ProgressPrinter printer_;
};

}  // namespace trireme
