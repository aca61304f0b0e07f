// What a replay server remembers, in a file, so that it finds it again after it was killed.
//
// The file is mapped into memory and has the ring as it is: record i is what is in slot i. A record that is written is in
// the file, as far as other processes and the next one can see: whoever is killed loses nothing that it had written. What a
// loss of power takes is what the system had not written to the disk yet; Sync asks it to.
//
//   header    4096 bytes: magic, capacity, floats of a record, checksum of the description; twice what was counted
//   records   capacity times: number + 1 (0: nothing here) | checksum | error | floats
//
// A record is marked as empty before it changes and as full when it is whole, and its checksum covers the number and the
// floats: one that was torn, or is damaged, is noticed and left out. Errors change on their own. The description is a
// file beside it, replaced as a whole; so is the mark that its run has ended.
//
// What was counted, inserts and how far draws are ahead of them, is written after every insert and draw, to each of its two
// places in turn: one of them is always whole.
//
// The file has all its blocks from the beginning, so nothing that is written later can find the disk full. Where it was cut
// and filled with zeros, or has holes, these are empty records: they count as lost, and are given room again.
//
// Thread safety: one thread does everything else; Sync may be called by another one meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/folder_claim.h"
#include "trireme/replay/replay_part.h"

namespace trireme {

class ReplayFolder {
 public:
  // Throws Error when another server uses it, or it cannot be made.
  explicit ReplayFolder(std::filesystem::path path);
  ~ReplayFolder();
  ReplayFolder(const ReplayFolder&) = delete;
  ReplayFolder& operator=(const ReplayFolder&) = delete;

  // Whose memory is in it; nothing where there is none. Throws Error when it is damaged.
  std::optional<std::string> Description() const;
  // Begins an empty one, in the place of what was there. Throws Error when the disk has no room for all of it; what was there
  // is then there still.
  void Create(const std::string& description, std::size_t capacity, std::size_t record_size);
  // Whether the run of what is in it has ended. Setting it throws Error.
  bool ended() const;
  void SetEnded(bool ended);

  struct Counted {
    std::uint64_t inserted = 0;  // transitions, ever
    double drift = 0;            // of draws, see RateLimiter
  };
  struct Found {
    std::uint64_t inserted = 0;
    Counted counted;  // when it was written last; may be behind by one insert
    std::size_t there = 0, lost = 0;
  };
  // Fills `part`, which is empty and was made as the description says, with what is there. Throws Error when the file is
  // another one than the description means, or cannot be read.
  Found Restore(ReplayPart& part, std::size_t capacity, std::size_t record_size);

  // What the last Insert of `part` has changed, and the last Update.
  void WriteInserted(const ReplayPart& part);
  void WriteErrors(const ReplayPart& part);
  void WriteCounted(const Counted& counted);
  // Waits until what was written before is on the disk. Returns false where that fails.
  bool Sync() const;

 private:
  struct Header;
  struct Counts;
  struct Record;

  void Open(bool create);
  // All blocks of the file. Throws Error when there is no room; a file that was there is as it was.
  void TakeRoom(std::size_t bytes);
  void Map(bool create);
  void Unmap();
  Record* At(std::size_t slot) const;
  Counts* CountsAt(std::uint64_t number) const;
  Counted ReadCounted();
  std::uint64_t ChecksumOf(const Record& record) const;

  std::filesystem::path path_;
  FolderClaim claim_;
  mutable std::mutex mutex_;  // guards fd_ against being closed while Sync waits for it
  int fd_ = -1;
  std::byte* bytes_ = nullptr;
  std::size_t capacity_ = 0, record_size_ = 0, stride_ = 0;
  std::uint64_t counts_ = 0;  // written so far
};

}  // namespace trireme
