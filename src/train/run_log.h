// What only the leader of a run has: its files, and the line a person watches.
#pragma once

#include <string>

#include "trireme/metrics/jsonl.h"
#include "trireme/metrics/progress.h"
#include "trireme/metrics/tensorboard.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/run_state.h"

namespace trireme {

class RunLog {
 public:
  // The run in `folder` goes on from `progress` with the settings `config`. First everything is opened; only
  // then settings that were changed for a resume are recorded, the result of an earlier end of the run goes,
  // and so do rows after `progress`. Throws Error.
  RunLog(const RunFolder& folder, const std::string& config, const RunProgress& progress, bool json);

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
