#include "server/shard_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "server/shard_snapshot.h"

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

void PutNumbers(StateWriter& state, std::uint64_t shard, std::uint64_t number) {
  state.PutValue<std::uint64_t>("files/shard", shard);
  state.PutValue<std::uint64_t>("files/number", number);
}

// A log that has records belongs to a shard, and without its snapshot the shard is lost.
void RequireNoRecords(const fs::path& folder) {
  for (const std::size_t log : {0, 1}) {
    const fs::path path = PathOfLog(folder, log);
    std::error_code ignored;
    if (!fs::exists(path, ignored) || ShardLogReader(path, 0).FirstNumber() == 0) continue;
    Fail("{} has changes of a shard but {} is missing: put it back, or remove the folder to begin anew",
         path.string(), SnapshotPath(folder).string());
  }
}

}  // namespace

// The operating system gives it back when the process ends, however that happens. Where a file system has no
// locks, it does nothing.
class ShardFiles::Lock {
 public:
  explicit Lock(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) Fail("cannot open the folder {}: {}", folder.string(), std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::close(fd_);
    Fail("another server uses {}: stop it, or give this one another folder", folder.string());
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_;
};

ShardFiles::ShardFiles(const ShardStorage& storage, std::unique_ptr<Lock> lock, std::uint64_t shard)
    : storage_(storage), lock_(std::move(lock)), shard_(shard) {}

ShardFiles::~ShardFiles() = default;

fs::path ShardFiles::LogPath(std::size_t log) const { return PathOfLog(storage_.folder, log); }

// The snapshot comes last: only with it the shard exists.
std::unique_ptr<ShardFiles> ShardFiles::Create(const ShardStorage& storage, StateWriter&& state) {
  std::error_code error;
  fs::create_directories(storage.folder, error);
  if (error) Fail("cannot make the folder {}: {}", storage.folder.string(), error.message());
  auto lock = std::make_unique<Lock>(storage.folder);
  const fs::path snapshot = SnapshotPath(storage.folder);
  if (fs::exists(snapshot, error)) {
    Fail("{} holds another shard: recover it, remove it or choose another folder", storage.folder.string());
  }
  RequireNoRecords(storage.folder);
  std::unique_ptr<ShardFiles> files(new ShardFiles(storage, std::move(lock), RandomNumber()));
  for (const std::size_t log : {0, 1}) ShardLog::Create(files->LogPath(log), storage.log_bytes);
  PutNumbers(state, files->shard_, 0);
  WriteSnapshot(snapshot, std::move(state));
  files->OpenLogs({});
  return files;
}

std::unique_ptr<ShardFiles> ShardFiles::Open(const ShardStorage& storage) {
  std::error_code error;
  if (!fs::exists(storage.folder, error)) return nullptr;
  auto lock = std::make_unique<Lock>(storage.folder);
  const fs::path snapshot = SnapshotPath(storage.folder);
  if (!fs::exists(snapshot, error)) {
    RequireNoRecords(storage.folder);
    return nullptr;
  }
  StateReader state = ReadSnapshot(snapshot);
  const auto shard = state.GetValue<std::uint64_t>("files/shard");
  std::unique_ptr<ShardFiles> files(new ShardFiles(storage, std::move(lock), shard));
  files->snapshot_number_ = files->number_ = state.GetValue<std::uint64_t>("files/number");
  files->loaded_ = std::move(state);
  for (const std::size_t log : {0, 1}) {
    const fs::path path = files->LogPath(log);
    if (fs::exists(path, error)) continue;
    Fail("{} is missing: put it back, or give up the changes it held by making an empty file of that name",
         path.string());
  }
  return files;
}

StateReader ShardFiles::ReadState() {
  CHECK(loaded_.has_value());
  StateReader state = std::move(*loaded_);
  loaded_.reset();
  return state;
}

void ShardFiles::Replay(const std::function<void(const LogRecord&)>& change) {
  std::array<std::unique_ptr<ShardLogReader>, 2> readers;
  for (const std::size_t log : {0, 1}) readers[log] = std::make_unique<ShardLogReader>(LogPath(log), shard_);
  // Changes up to number_ are made. If later ones lie where Next() cannot reach them, something between was
  // damaged.
  const auto refuse_damage = [&](const ShardLogReader& reader) {
    if (!reader.HasLater(number_ + 1)) return;
    const std::string path = reader.path().string();
    Fail(
        "{} is damaged at byte {}: changes after number {} follow, but cannot be made. Put back a copy of "
        "the "
        "whole folder, or give them up with: truncate -s {} {}",
        path, reader.offset(), number_, reader.offset(), path);
  };

  std::array<std::uint64_t, 2> ends = {};
  const std::size_t older = readers[1]->FirstNumber() < readers[0]->FirstNumber() ? 1 : 0;
  for (const std::size_t log : {older, 1 - older}) {
    ShardLogReader& reader = *readers[log];
    std::uint64_t start = reader.offset();
    for (auto record = reader.Next(); record; start = reader.offset(), record = reader.Next()) {
      last_[log] = record->number;
      if (record->number <= number_) continue;  // the snapshot has it
      if (record->number != number_ + 1) {
        const ShardLogReader& other = *readers[1 - log];
        refuse_damage(other);
        Fail(
            "changes {} to {} are missing: {} goes on behind them, {} ends before them at byte {}. Put back "
            "a "
            "copy of the whole folder, or give up the later ones with: truncate -s {} {}",
            number_ + 1, record->number - 1, reader.path().string(), other.path().string(), other.offset(),
            start, reader.path().string());
      }
      change(*record);
      number_ = record->number;
      active_ = log;
    }
    ends[log] = reader.offset();
  }
  for (const auto& reader : readers) refuse_damage(*reader);
  OpenLogs(ends);
  if (number_ == snapshot_number_) logs_[active_]->Restart(storage_.log_bytes);
}

void ShardFiles::OpenLogs(const std::array<std::uint64_t, 2>& ends) {
  for (const std::size_t log : {0, 1}) {
    logs_[log] = std::make_unique<ShardLog>(LogPath(log), shard_, ends[log]);
  }
}

void ShardFiles::Append(LogRecord& record) {
  record.number = number_ + 1;
  logs_[active_]->Append(record, storage_.durable);
  number_ = last_[active_] = record.number;
}

std::uint64_t ShardFiles::Length() const {
  return logs_[active_]->end() + (IsFree(1 - active_) ? 0 : logs_[1 - active_]->end());
}

bool ShardFiles::WantsSnapshot(std::uint64_t bytes) {
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

void ShardFiles::BeginSnapshot(StateWriter&& state) {
  CHECK(!under_way_.valid());
  PutNumbers(state, shard_, number_);
  const std::size_t other = 1 - active_;
  if (IsFree(other) && !logs_[active_]->suspect()) {
    logs_[other]->Restart(storage_.log_bytes);
    active_ = other;
  }
  begun_number_ = number_;
  under_way_ = std::async(std::launch::async, [path = SnapshotPath(storage_.folder), audit = storage_.audit,
                                               state = std::move(state)]() mutable {
    if (!audit.empty()) FlushFile(audit);
    WriteSnapshot(path, std::move(state));
  });
  if (must_succeed_) FinishSnapshot();
}

void ShardFiles::FinishSnapshot() {
  Collect();
  if (!failure_.empty()) Fail("{}. Nothing was changed: make room on that disk, then try again", failure_);
}

void ShardFiles::Collect() {
  try {
    under_way_.get();
  } catch (const Error& error) {
    failure_ = error.what();
    retry_length_ = Length() + storage_.log_bytes / 4;
    return;
  }
  failure_.clear();
  retry_length_ = 0;
  snapshot_number_ = begun_number_;
  if (number_ == snapshot_number_) logs_[active_]->Restart(storage_.log_bytes);
}

}  // namespace trireme
