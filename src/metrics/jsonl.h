// metrics.jsonl: one JSON object per line and iteration, {"step":2048,"wall_s":0.1,"loss":0.5,...}.
//
// JSON has no NaN or infinity: both are written as null and read back as NaN.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/metrics/append_file.h"
#include "trireme/metrics/metric_row.h"

namespace trireme {

// The row as one line, newline included.
std::string FormatJsonlRow(const MetricRow& row);

// Writes rows as they come. Each row is handed to the operating system whole before Append returns.
// Thread safety: none.
class JsonlWriter {
 public:
  // Starts `path` afresh, or goes on after its first `resume_offset` bytes, as Offset() gave them: what
  // follows is cut off, and so is a partial line, so that a resumed run has no row twice. A file shorter than
  // the offset keeps its whole lines. Throws Error naming the path.
  explicit JsonlWriter(const std::filesystem::path& path, std::uint64_t resume_offset = 0);

  // Goes back to `resume_offset`. Throws Error naming the path.
  void CutTo(std::uint64_t resume_offset);

  // Throws Error naming the path when the disk is full; the file then still ends with the row before.
  void Append(const MetricRow& row) { file_.Append(FormatJsonlRow(row)); }

  // Returns when all rows are on disk. Throws Error naming the path.
  void Flush() { file_.Flush(); }

  // Byte offset after the last row: save it with a checkpoint to resume from there.
  std::uint64_t Offset() const { return file_.size(); }

 private:
  AppendFile file_;
};

// All rows of a file that JsonlWriter wrote. A partial last line, as a killed process leaves it, is skipped.
// Throws Error naming the file and the line for anything else that is not a row.
std::vector<MetricRow> ReadJsonl(const std::filesystem::path& path);

}  // namespace trireme
