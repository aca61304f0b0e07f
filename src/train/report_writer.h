// Turns the files of a run into its report.
#pragma once

#include <string>

#include "trireme/metrics/report.h"
#include "trireme/train/run_folder.h"

namespace trireme {

// Writes report.html and learning_curve.svg from config.toml, metrics.jsonl, the result and pictures. Throws Error.
void WriteRunReport(const RunFolder& folder, const RunFacts& facts, ReportStrip strip);

}  // namespace trireme
