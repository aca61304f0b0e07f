// A list of the updates that were made, for those who check that none was lost and none made twice: a line
// "version worker sequence" per update.
//
// A line is written before its update is made and taken back when the update fails. After a restart the file
// is cut to what it was at the snapshot, and the updates of the log are added again: so it always agrees with
// the shard, whatever happened to the process. Thread safety: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "metrics/append_file.h"
#include "server/shard.h"

namespace trireme {

class ShardAudit {
 public:
  // A new file. Throws Error when there is one that is not empty.
  explicit ShardAudit(const std::filesystem::path& path);
  // The one that had `bytes` bytes when the shard had `version`, cut back to that. Throws Error when it is
  // visibly not that file.
  ShardAudit(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t version);
  // Whether there is something to go on with.
  static bool Exists(const std::filesystem::path& path);

  // Throws Error; the file then ends where it ended.
  void Add(std::uint64_t version, const ShardUpdate& update);
  // Takes back the last line. What cannot be removed now is removed before the next line is added.
  void TakeBack() noexcept;

  std::uint64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void Open();

  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;     // up to the end of the lines that count
  std::uint64_t previous_ = 0;  // bytes_ before the last line
  std::unique_ptr<AppendFile> file_;
};

}  // namespace trireme
