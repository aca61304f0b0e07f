// The changes of a part in a file, one record after the other: docs/server-files.md describes the bytes.
//
// Changes are numbered 1, 2, ... from the beginning of the part's life. A log is written from its start
// again and again, over records that a snapshot has made superfluous: where the numbers cease to follow each
// other, the valid part ends. A record that was written in part does not check and ends it too.
//
// The file grows ahead of the records, in steps, and says at its beginning how long it is: invariant
//   the file is at least as long as it says, and every record ends within that.
// So a file that was cut is told from one that simply ends.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/server/disk/parameter_part.h"

namespace trireme {

struct LogRecord {
  enum class Kind : std::uint32_t { kUpdate = 1, kNote = 2, kGoBack = 3 };
  Kind kind = Kind::kUpdate;
  std::uint64_t number = 0;   // of the change
  std::uint64_t version = 0;  // of the part, after it
  PartUpdate update = {};     // of an update, with its gradient; of a return, its mark
  std::span<const float> gradient;
  std::string_view name, text;  // of a note; an update carries a text that may be empty, and no name
};

// For appending.
class PartLog {
 public:
  // Opens the file, which must exist, for appending at `end` (kBegin: from the start). `part` is put into
  // every record.
  PartLog(std::filesystem::path path, std::uint64_t part, std::uint64_t end);
  ~PartLog();
  PartLog(const PartLog&) = delete;
  PartLog& operator=(const PartLog&) = delete;

  // Where the first record lies.
  static constexpr std::uint64_t kBegin = 64;

  // Makes a log without records, with a little room, in place of what was there. Throws Error.
  static void Create(const std::filesystem::path& path, std::uint64_t part);

  // Bytes that a record takes.
  static std::uint64_t SizeOf(const LogRecord& record);
  // Returns when the kernel has the record, or, `durable`, when the disk has it. Room for it is asked for
  // before: a full disk is noticed here. Throws Error: then the record will not be found again, and the log
  // ends where it ended.
  void Append(const LogRecord& record, bool durable);
  // The next record goes to the start. Room beyond `bytes` is given back.
  void Restart(std::uint64_t bytes);

  std::uint64_t end() const { return end_; }
  // Whether the disk has failed to take what was written: records before the end may be unreadable.
  bool suspect() const { return suspect_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void Grow(std::uint64_t needed, bool durable);
  void Write(const LogRecord& record);
  void Withdraw();

  std::filesystem::path path_;
  std::uint64_t part_;
  std::uint64_t end_;
  std::uint64_t length_ = 0;  // of the file, as it says itself
  bool suspect_ = false;
  int fd_;
};

// For reading after a restart. Views of records are valid as long as the reader.
class PartLogReader {
 public:
  // Throws Error when the file cannot be read. One that is damaged, cut or missing is read as far as
  // possible.
  PartLogReader(std::filesystem::path path, std::uint64_t part);
  ~PartLogReader();
  PartLogReader(const PartLogReader&) = delete;
  PartLogReader& operator=(const PartLogReader&) = delete;

  // The next record, if it is whole and its number follows that of the record before it. Throws Error when it
  // is whole but belongs to another part.
  std::optional<LogRecord> Next();
  // The number of the first record, 0 if there is none.
  std::uint64_t FirstNumber() const;

  // Whether a whole record with at least this number lies behind offset(), out of the reach of Next().
  bool HasLater(std::uint64_t number) const;

  // What is wrong with the file as a whole, for a message: cut, or damaged at its beginning. Empty: nothing.
  std::string Flaw() const;
  // Whether the last record that Next() found was the last one ever written, as far as the file, however
  // flawed, can prove it: behind it there is room for another, and no sign of one that was cut off.
  bool EndsHere() const;

  // The end of the last record that Next() found.
  std::uint64_t offset() const { return offset_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool HasMagic(std::uint64_t offset) const;

  struct Found {
    LogRecord record;
    std::uint64_t part = 0, size = 0;
  };
  std::optional<Found> At(std::uint64_t offset) const;

  std::filesystem::path path_;
  std::uint64_t part_;
  std::span<const std::byte> bytes_;  // the file, mapped
  std::uint64_t offset_ = PartLog::kBegin;
  std::uint64_t previous_ = 0;  // number of the record before offset_; 0 at the start
};

}  // namespace trireme
