#include "trireme/server/disk/part_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <random>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/server/disk/part_snapshot.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Logs may become this much longer than wanted while snapshots are slow or fail.
constexpr std::uint64_t kMostLogs = 4;
// A log holds at least this many changes, however large they are: a snapshot must not cost more than them.
constexpr std::uint64_t kFewestChanges = 8;

fs::path SnapshotPath(const fs::path& folder) { return folder / "shard.snapshot"; }
fs::path PathOfLog(const fs::path& folder, std::size_t log) {
  return folder / fmt::format("shard.log{}", log);
}

std::uint64_t RandomNumber() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void FlushFile(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fdatasync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) Fail("cannot flush {}: {}", path.string(), std::strerror(error));
}

void PutNumbers(StateWriter& state, std::uint64_t part, std::uint64_t number) {
  state.PutValue<std::uint64_t>("files/shard", part);
  state.PutValue<std::uint64_t>("files/number", number);
}

// A log that has records belongs to a part, and without its snapshot the part is lost.
void RequireNoRecords(const fs::path& folder) {
  for (const std::size_t log : {0, 1}) {
    const fs::path path = PathOfLog(folder, log);
    std::error_code ignored;
    if (!fs::exists(path, ignored) || PartLogReader(path, 0).FirstNumber() == 0) continue;
    Fail("{} has changes of a part but {} is missing: put it back, or remove the folder to begin anew",
         path.string(), SnapshotPath(folder).string());
  }
}

}  // namespace

PartFiles::PartFiles(const PartStorage& storage, std::unique_ptr<ServerFolderLock> lock, std::uint64_t part)
    : storage_(storage), lock_(std::move(lock)), part_(part) {}

PartFiles::~PartFiles() = default;

fs::path PartFiles::LogPath(std::size_t log) const { return PathOfLog(storage_.folder, log); }

// The snapshot comes last: only with it the part exists.
std::unique_ptr<PartFiles> PartFiles::Create(const PartStorage& storage, StateWriter&& state) {
  std::error_code error;
  fs::create_directories(storage.folder, error);
  if (error) Fail("cannot make the folder {}: {}", storage.folder.string(), error.message());
  auto lock = std::make_unique<ServerFolderLock>(storage.folder);
  const fs::path snapshot = SnapshotPath(storage.folder);
  if (fs::exists(snapshot, error)) {
    Fail("{} holds another part: recover it, remove it or choose another folder", storage.folder.string());
  }
  RequireNoRecords(storage.folder);
  std::unique_ptr<PartFiles> files(new PartFiles(storage, std::move(lock), RandomNumber()));
  for (const std::size_t log : {0, 1}) PartLog::Create(files->LogPath(log), files->part_);
  PutNumbers(state, files->part_, 0);
  WriteSnapshot(snapshot, std::move(state));
  files->OpenLogs({PartLog::kBegin, PartLog::kBegin});
  return files;
}

std::unique_ptr<PartFiles> PartFiles::Open(const PartStorage& storage) {
  std::error_code error;
  if (!fs::exists(storage.folder, error)) return nullptr;
  auto lock = std::make_unique<ServerFolderLock>(storage.folder);
  const fs::path snapshot = SnapshotPath(storage.folder);
  if (!fs::exists(snapshot, error)) {
    RequireNoRecords(storage.folder);
    return nullptr;
  }
  StateReader state = ReadSnapshot(snapshot);
  const auto part = state.GetValue<std::uint64_t>("files/shard");
  std::unique_ptr<PartFiles> files(new PartFiles(storage, std::move(lock), part));
  files->snapshot_number_ = files->number_ = state.GetValue<std::uint64_t>("files/number");
  files->loaded_ = std::move(state);
  return files;
}

StateReader PartFiles::ReadState() {
  TRIREME_CHECK(loaded_.has_value());
  StateReader state = std::move(*loaded_);
  loaded_.reset();
  return state;
}

void PartFiles::Replay(const std::function<void(const LogRecord&)>& change) {
  Readers readers;
  for (const std::size_t log : {0, 1}) {
    std::error_code error;
    if (!fs::exists(LogPath(log), error)) Lose(fmt::format("{} is missing", LogPath(log).string()));
    readers[log] = std::make_unique<PartLogReader>(LogPath(log), part_);
  }
  const std::size_t older = readers[1]->FirstNumber() < readers[0]->FirstNumber() ? 1 : 0;
  if (ReplayLog(readers, older, change)) ReplayLog(readers, 1 - older, change);
  for (const auto& reader : readers) RefuseDamage(*reader);
  for (const std::size_t log : {0, 1}) RefuseFlaw(readers, log);
  if (lost_) return;
  OpenLogs({readers[0]->offset(), readers[1]->offset()});
  if (number_ == snapshot_number_) logs_[active_]->Restart(storage_.log_bytes);
}

bool PartFiles::ReplayLog(const Readers& readers, std::size_t log,
                          const std::function<void(const LogRecord&)>& change) {
  PartLogReader& reader = *readers[log];
  for (auto record = reader.Next(); record; record = reader.Next()) {
    last_[log] = record->number;
    if (record->number <= number_) continue;  // the snapshot has it
    if (record->number != number_ + 1) {
      const PartLogReader& other = *readers[1 - log];
      RefuseDamage(other);
      Lose(fmt::format("changes {} to {} are missing: {} goes on behind them, {} ends before them at byte {}",
                       number_ + 1, record->number - 1, reader.path().string(), other.path().string(),
                       other.offset()));
      return false;
    }
    change(*record);
    number_ = record->number;
    active_ = log;
  }
  return true;
}

// Later changes that lie where Next() cannot reach them were once reached.
void PartFiles::RefuseDamage(const PartLogReader& reader) {
  if (lost_ || !reader.HasLater(number_ + 1)) return;
  Lose(fmt::format("{} is damaged at byte {}: changes after number {} follow, but cannot be made",
                   reader.path().string(), reader.offset(), number_));
}

// A log that was cut has lost no change if it ends before the cut, or if the other log goes on behind it.
void PartFiles::RefuseFlaw(const Readers& readers, std::size_t log) {
  const PartLogReader &reader = *readers[log], &other = *readers[1 - log];
  const std::string flaw = reader.Flaw();
  if (lost_ || flaw.empty()) return;
  const std::uint64_t first = reader.FirstNumber();
  const bool continued = first > 0 && other.FirstNumber() > first;
  if (continued || reader.EndsHere()) {
    remark_ = fmt::format("{}; no change was lost", flaw);
  } else {
    Lose(fmt::format("{}: changes after number {} may be lost", flaw, number_));
  }
}

void PartFiles::Lose(const std::string& what) {
  if (!storage_.accept_loss) {
    Fail(
        "{}. Put back a copy of the whole folder, or give up what is lost by starting the server once with "
        "--accept-loss",
        what);
  }
  lost_ = true;
  remark_ = fmt::format("{}. This was given up, as --accept-loss says", what);
}

// Until the snapshot is there, everything is as it was found.
void PartFiles::BeginAnew(StateWriter&& state) {
  PutNumbers(state, part_, number_);
  if (!storage_.audit.empty() && fs::exists(storage_.audit)) FlushFile(storage_.audit);
  WriteSnapshot(SnapshotPath(storage_.folder), std::move(state));
  snapshot_number_ = number_;
  last_ = {};
  active_ = 0;
  for (const std::size_t log : {0, 1}) PartLog::Create(LogPath(log), part_);
  OpenLogs({PartLog::kBegin, PartLog::kBegin});
}

void PartFiles::OpenLogs(const std::array<std::uint64_t, 2>& ends) {
  for (const std::size_t log : {0, 1}) {
    logs_[log] = std::make_unique<PartLog>(LogPath(log), part_, ends[log]);
  }
}

void PartFiles::Append(LogRecord& record) {
  record.number = number_ + 1;
  logs_[active_]->Append(record, storage_.durable);
  number_ = last_[active_] = record.number;
}

std::uint64_t PartFiles::Length() const {
  return logs_[active_]->end() + (IsFree(1 - active_) ? 0 : logs_[1 - active_]->end());
}

bool PartFiles::WantsSnapshot(std::uint64_t bytes) {
  const std::uint64_t wanted = std::max(storage_.log_bytes, kFewestChanges * bytes);
  const bool suspect = logs_[active_]->suspect();
  if (under_way_.valid()) {
    const bool too_long = suspect || Length() + bytes > kMostLogs * wanted;
    if (!too_long && under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    Collect();
  }
  const std::uint64_t length = Length() + bytes;
  must_succeed_ = suspect || length > kMostLogs * wanted;
  return must_succeed_ || (length > wanted && length > retry_length_);
}

void PartFiles::BeginSnapshot(const std::function<StateWriter()>& save) {
  TRIREME_CHECK(!under_way_.valid());
  begun_number_ = number_;
  try {
    StateWriter state = save();
    PutNumbers(state, part_, number_);
    under_way_ = std::async(std::launch::async, [path = SnapshotPath(storage_.folder), audit = storage_.audit,
                                                 state = std::move(state)]() mutable {
      if (!audit.empty()) FlushFile(audit);
      WriteSnapshot(path, std::move(state));
    });
  } catch (const std::bad_alloc&) {
    SnapshotFailed("there is no memory for a snapshot");
  } catch (const std::system_error& error) {
    SnapshotFailed(fmt::format("there is no thread for a snapshot: {}", error.what()));
  }
  const std::size_t other = 1 - active_;
  if (under_way_.valid() && IsFree(other) && !logs_[active_]->suspect()) {
    logs_[other]->Restart(storage_.log_bytes);
    active_ = other;
  }
  if (must_succeed_) FinishSnapshot();
}

void PartFiles::FinishSnapshot() {
  if (under_way_.valid()) Collect();
  if (!failure_.empty()) Fail("{}. Nothing was changed: make room, then try again", failure_);
}

void PartFiles::Collect() {
  try {
    under_way_.get();
  } catch (const Error& error) {
    return SnapshotFailed(error.what());
  } catch (const std::bad_alloc&) {
    return SnapshotFailed("there is no memory for a snapshot");
  }
  failure_.clear();
  retry_length_ = 0;
  snapshot_number_ = begun_number_;
  if (number_ == snapshot_number_) logs_[active_]->Restart(storage_.log_bytes);
}

void PartFiles::SnapshotFailed(const std::string& why) {
  failure_ = why;
  retry_length_ = Length() + storage_.log_bytes / 4;
}

}  // namespace trireme
