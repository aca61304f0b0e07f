#include "trireme/experience/replay_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

constexpr std::size_t kHeaderBytes = 4096, kCountsAt = 64, kCountsBytes = 64;
constexpr std::array<char, 8> kMagic = {'T', 'R', 'M', 'R', 'E', 'P', '0', '2'};

std::uint64_t ChecksumOfText(std::string_view text) {
  return Checksum(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

struct ReplayFolder::Header {
  std::array<char, 8> magic;
  std::uint64_t capacity, record_size, checksum;
};

struct ReplayFolder::Counts {
  Counted counted;
  std::uint64_t number;
  std::uint64_t checksum;  // of what is before it

  std::uint64_t Sum() const {
    return Checksum(std::as_bytes(std::span(this, 1)).first(offsetof(Counts, checksum)));
  }
};

struct ReplayFolder::Record {
  std::uint64_t number_plus_1;
  std::uint64_t checksum;
  float error;
  float floats[];
};

ReplayFolder::ReplayFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) Fail("cannot make the folder {}: {}", path_.string(), error.message());
  claim_ = FolderClaim::Try(path_);
  if (!claim_.held())
    Fail("another server uses {}: stop it, or give this one another folder", path_.string());
  for (const auto& file : ListFolder(path_)) {  // what a server that was killed was writing
    if (file.extension() == ".tmp") std::filesystem::remove(file, error);
  }
}

ReplayFolder::~ReplayFolder() { Unmap(); }

// The description ends with a line that is its checksum.
std::optional<std::string> ReplayFolder::Description() const {
  const auto file = path_ / "description";
  if (!std::filesystem::exists(file)) return std::nullopt;
  std::string text = ReadFile(file);
  std::uint64_t checksum = 0;
  if (text.size() >= sizeof checksum) {
    std::memcpy(&checksum, text.data() + text.size() - sizeof checksum, sizeof checksum);
    text.resize(text.size() - sizeof checksum);
    if (checksum == ChecksumOfText(text)) return text;
  }
  Fail("{} is damaged, and what is remembered beside it cannot be read without: remove {} to begin anew",
       file.string(), path_.string());
}

void ReplayFolder::Open(bool create) {
  const auto file = path_ / "transitions";
  const std::lock_guard lock(mutex_);
  fd_ = open(file.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
  if (fd_ < 0) Fail("cannot open {}: {}", file.string(), std::strerror(errno));
}

void ReplayFolder::TakeRoom(std::size_t bytes) {
  struct stat before;
  if (fstat(fd_, &before) != 0) before.st_size = 0;
  const int error = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  if (error == 0) return;
  const auto file = path_ / "transitions";
  // Whatever it was given is given back.
  if (before.st_size == 0) std::filesystem::remove(file);
  if (before.st_size != 0 && ftruncate(fd_, before.st_size) != 0)
    Fail("{} is longer than it was, and cannot be cut: {}", file.string(), std::strerror(errno));
  Fail("{} needs {} bytes of disk: {}. Make room, or use another --dir", file.string(), bytes,
       std::strerror(error));
}

void ReplayFolder::Map(bool create) {
  Unmap();
  const auto file = path_ / "transitions";
  // Records begin at multiples of 8 bytes.
  stride_ = (offsetof(Record, floats) + record_size_ * sizeof(float) + 7) / 8 * 8;
  const std::size_t bytes = kHeaderBytes + capacity_ * stride_;
  Open(create);
  if (create) {
    TakeRoom(bytes);  // before what was there is gone
    std::filesystem::remove(path_ / "description");
    SetEnded(false);
    if (ftruncate(fd_, 0) != 0) Fail("cannot empty {}: {}", file.string(), std::strerror(errno));
    TakeRoom(bytes);
  }
  struct stat status;
  if (fstat(fd_, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    Fail(
        "{} has {} bytes, and what is remembered there takes {}: it was cut, or belongs to something else. "
        "Remove {} "
        "to begin anew",
        file.string(), status.st_size, bytes, path_.string());
  }
  if (!create) TakeRoom(bytes);  // where it has holes
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) Fail("cannot map {}: {}", file.string(), std::strerror(errno));
  bytes_ = static_cast<std::byte*>(mapped);
}

void ReplayFolder::Unmap() {
  if (bytes_ != nullptr) munmap(bytes_, kHeaderBytes + capacity_ * stride_);
  bytes_ = nullptr;
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// The description comes last: before it is there, there is nothing.
void ReplayFolder::Create(const std::string& description, std::size_t capacity, std::size_t record_size) {
  Unmap();
  capacity_ = capacity;
  record_size_ = record_size;
  Map(/*create=*/true);
  counts_ = 0;
  const std::uint64_t checksum = ChecksumOfText(description);
  const Header header{kMagic, capacity, record_size, checksum};
  std::memcpy(bytes_, &header, sizeof header);
  WriteCounted({});
  const std::string_view end(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  WriteFileAtomically(path_ / "description", {description, end});
}

bool ReplayFolder::ended() const { return std::filesystem::exists(path_ / "ended"); }

void ReplayFolder::SetEnded(bool ended) {
  if (ended) return WriteFileAtomically(path_ / "ended", "");
  std::filesystem::remove(path_ / "ended");
}

ReplayFolder::Record* ReplayFolder::At(std::size_t slot) const {
  return reinterpret_cast<Record*>(bytes_ + kHeaderBytes + slot * stride_);
}

std::uint64_t ReplayFolder::ChecksumOf(const Record& record) const {
  const auto number = std::as_bytes(std::span(&record.number_plus_1, 1));
  return Checksum(std::as_bytes(std::span(record.floats, record_size_)), Checksum(number));
}

ReplayFolder::Counts* ReplayFolder::CountsAt(std::uint64_t number) const {
  return reinterpret_cast<Counts*>(bytes_ + kCountsAt + number % 2 * kCountsBytes);
}

ReplayFolder::Counted ReplayFolder::ReadCounted() {
  Counted counted;
  counts_ = 0;
  for (const std::uint64_t place : {0, 1}) {
    const Counts& counts = *CountsAt(place);
    if (counts.checksum != counts.Sum() || counts.number < counts_) continue;
    counts_ = counts.number;
    counted = counts.counted;
  }
  return counted;
}

ReplayFolder::Found ReplayFolder::Restore(ReplayPart& part, std::size_t capacity, std::size_t record_size) {
  Unmap();
  capacity_ = capacity;
  record_size_ = record_size;
  Map(/*create=*/false);
  Header header;
  std::memcpy(&header, bytes_, sizeof header);
  if (header.magic != kMagic || header.capacity != capacity || header.record_size != record_size ||
      header.checksum != ChecksumOfText(Description().value_or(""))) {
    Fail("{} is not what its description says, or damaged: remove {} to begin anew",
         (path_ / "transitions").string(), path_.string());
  }
  Found found{.counted = ReadCounted()};
  const auto whole = [&](std::size_t slot) {
    const Record& record = *At(slot);
    return record.number_plus_1 != 0 && (record.number_plus_1 - 1) % capacity == slot &&
           record.checksum == ChecksumOf(record);
  };
  for (std::size_t slot = 0; slot < capacity; ++slot) {
    if (whole(slot)) found.inserted = std::max(found.inserted, At(slot)->number_plus_1);
  }
  // The newest may be among those that are lost; their numbers are not given again.
  if (found.inserted > 0) found.inserted = std::max(found.inserted, found.counted.inserted);
  part.Restore(found.inserted, [&](std::uint32_t slot, std::span<float> to, float& error) {
    const Record& record = *At(slot);
    // One whose time is over was to be overwritten by one that is lost.
    const bool there = whole(slot) && record.number_plus_1 + capacity > found.inserted;
    ++(there ? found.there : found.lost);
    if (!there) return false;
    std::copy_n(record.floats, record_size_, to.begin());
    error = record.error;
    return true;
  });
  return found;
}

// Stores reach the file in the order in which this thread makes them, also when it is killed; the compiler must not change it.
void ReplayFolder::WriteInserted(const ReplayPart& part) {
  const std::span<const std::uint32_t> slots = part.changed_slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Record& record = *At(slots[i]);
    const std::uint64_t number_plus_1 = part.NumberIn(slots[i]) + 1;
    std::atomic_ref(record.number_plus_1).store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::ranges::copy(part.record(slots[i]), record.floats);
    record.error = part.changed_errors()[i];
    const auto number = std::as_bytes(std::span(&number_plus_1, 1));
    record.checksum = Checksum(std::as_bytes(std::span(record.floats, record_size_)), Checksum(number));
    std::atomic_ref(record.number_plus_1).store(number_plus_1, std::memory_order_release);
  }
}

void ReplayFolder::WriteErrors(const ReplayPart& part) {
  const std::span<const std::uint32_t> slots = part.changed_slots();
  for (std::size_t i = 0; i < slots.size(); ++i) At(slots[i])->error = part.changed_errors()[i];
}

void ReplayFolder::WriteCounted(const Counted& counted) {
  Counts counts{.counted = counted, .number = ++counts_, .checksum = 0};
  counts.checksum = counts.Sum();
  std::memcpy(CountsAt(counts_), &counts, sizeof counts);
}

bool ReplayFolder::Sync() const {
  const std::lock_guard lock(mutex_);
  return fd_ < 0 || fdatasync(fd_) == 0;
}

}  // namespace trireme
