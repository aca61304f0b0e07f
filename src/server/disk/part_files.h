// The folder of a part: a snapshot and two logs, held so that the part can be found again at any moment.
//
//   shard.snapshot   everything after change number s
//   shard.log0       changes, numbered without a gap: with the newest snapshot, one log or one
//   shard.log1       after the other leads to the newest change
//
// While a snapshot is being written, by a thread of its own, changes go to the other log. A log is written
// from its start again only when the snapshot on disk has all of its changes: invariant
//   every change above s is in a log, in an unbroken row from the start of a log.
// Reading changes nothing, so a recovery may be killed as often as it likes.
//
// Files that were damaged or cut are refused, unless they prove that nothing acknowledged is gone; with
// PartStorage::accept_loss everything up to the damage is recovered.
//
// The folder is locked by its user. Belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/state.h"
#include "trireme/server/disk/folder_lock.h"
#include "trireme/server/disk/parameter_part.h"
#include "trireme/server/disk/part_log.h"

namespace trireme {

class PartFiles {
 public:
  // For a new part that begins with `state`. Throws Error when the folder holds a part or is in use, or
  // when it cannot be written.
  static std::unique_ptr<PartFiles> Create(const PartStorage& storage, StateWriter&& state);
  // Those of an earlier process; none where no part was ever begun. Throws Error when files are damaged or
  // missing.
  static std::unique_ptr<PartFiles> Open(const PartStorage& storage);
  // Waits for a snapshot that is being written.
  ~PartFiles();

  // After Open, once and in this order: the state of the snapshot, then every change after it. Throws Error
  // when acknowledged changes are lost and that is not accepted.
  StateReader ReadState();
  void Replay(const std::function<void(const LogRecord&)>& change);
  // Whether changes were given up: then the part must begin anew with the state that it has.
  bool lost() const { return lost_; }
  void BeginAnew(StateWriter&& state);
  // What Replay found odd, or gave up; empty: nothing.
  const std::string& remark() const { return remark_; }

  // Logs a change under the next number. Throws Error: then nothing has happened.
  void Append(LogRecord& record);

  // Whether BeginSnapshot should be called before a change of `bytes` bytes. May wait for the snapshot that
  // is being written when changes come much faster.
  bool WantsSnapshot(std::uint64_t bytes);
  // Calls `save` for what the snapshot is to hold, and returns as soon as it is under way; how it ended shows
  // later. A failure, also for lack of memory, is no harm as long as there is room for longer logs; when they
  // have become too long, this waits, and throws Error for a failure.
  void BeginSnapshot(const std::function<StateWriter()>& save);
  // Waits for the snapshot that was begun last. Throws Error when it could not be written.
  void FinishSnapshot();

 private:
  using Readers = std::array<std::unique_ptr<PartLogReader>, 2>;
  PartFiles(const PartStorage& storage, std::unique_ptr<ServerFolderLock> lock, std::uint64_t part);

  std::filesystem::path LogPath(std::size_t log) const;
  bool IsFree(std::size_t log) const { return last_[log] <= snapshot_number_; }
  std::uint64_t Length() const;  // of the logs that are needed
  // Makes the changes of one log that come after number_. False: some before them are missing, and were
  // given up.
  bool ReplayLog(const Readers& readers, std::size_t log,
                 const std::function<void(const LogRecord&)>& change);
  void RefuseDamage(const PartLogReader& reader);
  void RefuseFlaw(const Readers& readers, std::size_t log);
  // Acknowledged changes behind number_ are gone: throws Error, unless that is accepted.
  void Lose(const std::string& what);
  void OpenLogs(const std::array<std::uint64_t, 2>& ends);
  void Collect();  // the result of the snapshot under way
  void SnapshotFailed(const std::string& why);

  PartStorage storage_;
  std::unique_ptr<ServerFolderLock> lock_;
  std::uint64_t part_;                 // drawn at random when the part began; in all its files
  std::optional<StateReader> loaded_;  // until ReadState
  bool lost_ = false;
  std::string remark_;

  std::array<std::unique_ptr<PartLog>, 2> logs_;
  std::array<std::uint64_t, 2> last_ = {};  // number of the last change in each
  std::size_t active_ = 0;                  // the log that is written
  std::uint64_t number_ = 0;                // of the last change

  std::uint64_t snapshot_number_ = 0;  // of the last change in the snapshot on disk
  std::uint64_t begun_number_ = 0;     // the same of the one under way
  std::string failure_;                // of the last attempt; empty: none
  std::uint64_t retry_length_ = 0;     // no further attempt before the logs have this length
  bool must_succeed_ = false;
  std::future<void> under_way_;  // last: its destructor waits
};

}  // namespace trireme
