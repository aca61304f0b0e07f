// Scalars as an event file that TensorBoard reads.
//
// An event file is a sequence of TFRecords: length (8 bytes), masked CRC-32C of the length (4), data, masked
// CRC-32C of the data (4), all little-endian. The data is a protobuf `Event`; the few fields needed are
// encoded here by hand, so that the binary does not link protobuf for them:
//
//   Event       1: double wall_time   2: int64 step   3: string file_version   5: Summary   7: SessionLog
//   Summary     1: repeated Value { 1: string tag, 2: float simple_value }
//   SessionLog  1: enum status { START = 1 }
//
// The first event of a file holds the version. A resumed run starts a new file, which sorts after the earlier
// ones, with a SessionLog START: TensorBoard then drops the points of earlier files that the run repeats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trireme/metrics/append_file.h"
#include "trireme/metrics/metric_row.h"

namespace trireme {

// Each row reaches the operating system before Append returns. Thread safety: none.
class TensorBoardWriter {
 public:
  // Creates `folder` if need be and a new file events.out.tfevents.<seconds>.<host>.<pid> in it. With
  // `last_kept_step`, the step of the checkpoint a run resumes from, TensorBoard drops points of later steps.
  // Throws Error naming the path.
  explicit TensorBoardWriter(const std::filesystem::path& folder,
                             std::optional<std::int64_t> last_kept_step = std::nullopt);

  // One event with every value of the row that is not NaN; none if there is no such value. Throws Error
  // naming the path when the disk is full; the file then ends with the row before.
  void Append(const MetricRow& row);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace trireme
