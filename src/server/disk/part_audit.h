// A list of the updates that were made, for those who check that none was lost and none made twice: a line
// "version worker sequence" per update.
//
// A line is written before its update is made and taken back when the update fails. After a restart the file
// is cut to what it was at the snapshot, and the updates of the log are added again: so it always agrees with
// the part, whatever happened to the process. What lies before the snapshot is compared with the checksum
// that the snapshot has. Thread safety: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "trireme/metrics/append_file.h"
#include "trireme/server/disk/parameter_part.h"

namespace trireme {

class PartAudit {
 public:
  // The lines up to some update. `sum` is the checksum of each line, with that of the lines before as seed.
  struct Extent {
    std::uint64_t bytes = 0, sum = 0;
  };

  // A new file. Throws Error when there is one that is not empty.
  explicit PartAudit(const std::filesystem::path& path);
  // The one that had `extent` when the part had `version`, cut back to that. Throws Error when its lines are
  // others.
  PartAudit(const std::filesystem::path& path, const Extent& extent, std::uint64_t version);
  // Whether there is something to go on with.
  static bool Exists(const std::filesystem::path& path);

  // Throws Error; the file then ends where it ended.
  void Add(std::uint64_t version, const PartUpdate& update);
  // Takes back the last line. What cannot be removed now is removed before the next line is added.
  void TakeBack() noexcept;

  const Extent& extent() const { return extent_; }

 private:
  void Open();

  std::filesystem::path path_;
  Extent extent_;    // the lines that count
  Extent previous_;  // without the last one
  std::unique_ptr<AppendFile> file_;
};

}  // namespace trireme
