#include "trireme/server/disk/part_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr char kFileMagic[8] = {'T', 'R', 'I', 'R', 'L', 'O', 'G', '3'};
constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'R', 'E', 'C', '3'};
constexpr std::uint64_t kAlignment = 64;  // of records in the file
constexpr std::size_t kMostText = UINT32_MAX;
// The file grows to its double, but by at most this much at a time.
constexpr std::uint64_t kFirstLength = 16 << 10, kLargestStep = 8 << 20;

// What a log begins with.
struct FileHeader {
  char magic[8];
  std::uint64_t checksum;  // of all that follows
  std::uint64_t part;
  std::uint64_t length;  // the file has at least so many bytes
  std::uint64_t zeros[4];
};
static_assert(sizeof(FileHeader) == PartLog::kBegin);

std::uint64_t ChecksumOf(const FileHeader& header) {
  return Checksum(std::as_bytes(std::span(&header, 1)).subspan(offsetof(FileHeader, part)));
}

// Followed by the groups, the floats of the gradient, the name and the text, and zeros up to the next
// multiple of 64.
struct Header {
  char magic[8];
  std::uint64_t checksum;  // of all that follows
  std::uint64_t part, number;
  std::uint32_t kind, name_bytes, text_bytes, groups;
  std::uint64_t floats;
  std::uint64_t version, worker, sequence;
  std::int64_t steps;
  float scale, learning_rate;
  std::uint64_t mark;  // plus 1; 0: none
  std::uint64_t zeros[3];
};
static_assert(sizeof(Header) == 128 && sizeof(Header) % kAlignment == 0);
constexpr std::size_t kChecked = offsetof(Header, part);  // the checksum is of what begins here

static_assert(sizeof(PartGroup) == 24 && std::is_trivially_copyable_v<PartGroup>);

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

std::uint64_t PayloadSize(const LogRecord& record) {
  return record.update.groups.all().size_bytes() + record.gradient.size_bytes() + record.name.size() +
         record.text.size();
}

std::uint64_t Padding(std::uint64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

std::uint64_t ChecksumOf(const Header& header, const LogRecord& record) {
  std::uint64_t sum = Checksum(std::as_bytes(std::span(&header, 1)).subspan(kChecked));
  if (!record.update.groups.empty()) sum = Checksum(std::as_bytes(record.update.groups.all()), sum);
  sum = Checksum(std::as_bytes(record.gradient), sum);
  sum = Checksum(BytesOf(record.name), sum);
  return Checksum(BytesOf(record.text), sum);
}

Header HeaderOf(const LogRecord& record, std::uint64_t part) {
  const PartUpdate& update = record.update;
  Header header = {.magic = {},
                   .checksum = 0,
                   .part = part,
                   .number = record.number,
                   .kind = static_cast<std::uint32_t>(record.kind),
                   .name_bytes = static_cast<std::uint32_t>(record.name.size()),
                   .text_bytes = static_cast<std::uint32_t>(record.text.size()),
                   .groups = static_cast<std::uint32_t>(update.groups.size()),
                   .floats = record.gradient.size(),
                   .version = record.version,
                   .worker = update.worker,
                   .sequence = update.sequence,
                   .steps = update.steps,
                   .scale = update.scale,
                   .learning_rate = update.learning_rate,
                   .mark = update.mark ? *update.mark + 1 : 0,
                   .zeros = {}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.checksum = ChecksumOf(header, record);
  return header;
}

[[noreturn]] void FailToWrite(const std::filesystem::path& path, int error) {
  Fail("cannot write {}: {}. The change was not made: {}, then repeat it", path.string(),
       std::strerror(error),
       error == ENOSPC || error == EDQUOT ? "make room on that disk" : "see that the disk can be written");
}

// Makes the file `length` bytes long, with room on the disk where the file system can promise it; elsewhere
// a full disk shows when the bytes are written. 0, or the error.
int Extend(int fd, std::uint64_t length) {
  const auto size = static_cast<off_t>(length);
  if (::fallocate(fd, 0, 0, size) == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  return ::ftruncate(fd, size) == 0 ? 0 : errno;
}

int WriteFileHeader(int fd, std::uint64_t part, std::uint64_t length) {
  FileHeader header = {.magic = {}, .checksum = 0, .part = part, .length = length, .zeros = {}};
  std::memcpy(header.magic, kFileMagic, sizeof kFileMagic);
  header.checksum = ChecksumOf(header);
  const ssize_t written = ::pwrite(fd, &header, sizeof header, 0);
  return written == sizeof header ? 0 : written < 0 ? errno : EIO;
}

// Whether what follows the header can lie within `room` bytes.
bool HasRoom(const Header& header, std::uint64_t room) {
  const std::uint64_t others = header.groups * sizeof(PartGroup) + header.name_bytes + header.text_bytes;
  return header.groups <= GroupList<PartGroup>::kMost && header.floats <= room / sizeof(float) &&
         others <= room - header.floats * sizeof(float);
}

// `bytes` begin a log, whole.
std::optional<FileHeader> ReadFileHeader(std::span<const std::byte> bytes) {
  FileHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const bool whole =
      std::memcmp(header.magic, kFileMagic, sizeof kFileMagic) == 0 && ChecksumOf(header) == header.checksum;
  return whole ? std::optional(header) : std::nullopt;
}

}  // namespace

PartLog::PartLog(std::filesystem::path path, std::uint64_t part, std::uint64_t end)
    : path_(std::move(path)), part_(part), end_(end), fd_(::open(path_.c_str(), O_RDWR | O_CLOEXEC)) {
  if (fd_ < 0) Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  std::byte bytes[sizeof(FileHeader)] = {};
  struct stat info = {};
  int error = ::pread(fd_, bytes, sizeof bytes, 0) < 0 || ::fstat(fd_, &info) != 0 ? errno : 0;
  if (error == 0) {
    // A file that was cut behind its records goes on with the length it has.
    const std::optional<FileHeader> header = ReadFileHeader(bytes);
    length_ = static_cast<std::uint64_t>(info.st_size);
    if (!header || header->length > length_) error = WriteFileHeader(fd_, part_, length_);
  }
  if (error == 0) return;
  ::close(fd_);
  Fail("cannot write {}: {}", path_.string(), std::strerror(error));
}

PartLog::~PartLog() { ::close(fd_); }

void PartLog::Create(const std::filesystem::path& path, std::uint64_t part) {
  const std::string temporary = path.string() + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) Fail("cannot write {}: {}", temporary, std::strerror(errno));
  int error = Extend(fd, kFirstLength);
  if (error == 0) error = WriteFileHeader(fd, part, kFirstLength);
  ::close(fd);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  Fail("cannot make {}: {}. Make room on that disk", path.string(), std::strerror(error));
}

// The length is said only when the file has it.
void PartLog::Grow(std::uint64_t needed, bool durable) {
  std::uint64_t length = std::max(needed, std::min(2 * length_, length_ + kLargestStep));
  int error = Extend(fd_, length);
  if (error != 0 && length > needed) error = Extend(fd_, length = needed);
  if (error == 0 && durable && ::fdatasync(fd_) != 0) error = errno;
  if (error == 0) error = WriteFileHeader(fd_, part_, length);
  if (error != 0) FailToWrite(path_, error);
  length_ = length;
}

std::uint64_t PartLog::SizeOf(const LogRecord& record) {
  const std::uint64_t bytes = sizeof(Header) + PayloadSize(record);
  return bytes + Padding(bytes);
}

void PartLog::Append(const LogRecord& record, bool durable) {
  if (const std::size_t bytes = std::max(record.name.size(), record.text.size()); bytes > kMostText) {
    Fail("a note of {} bytes is longer than the {} that a record of {} can hold: the change was not made",
         bytes, kMostText, path_.string());
  }
  if (const std::uint64_t needed = end_ + SizeOf(record); needed > length_) Grow(needed, durable);
  Write(record);
  if (durable && ::fdatasync(fd_) != 0) {
    const int error = errno;
    suspect_ = true;
    Withdraw();
    FailToWrite(path_, error);
  }
  end_ += SizeOf(record);
}

void PartLog::Write(const LogRecord& record) {
  static constexpr std::byte kZeros[kAlignment] = {};
  Header header = HeaderOf(record, part_);
  const auto piece = [](const void* data, std::size_t size) { return iovec{const_cast<void*>(data), size}; };
  const std::span<const PartGroup> groups = record.update.groups.all();
  iovec pieces[] = {piece(&header, sizeof header),
                    piece(groups.data(), groups.size_bytes()),
                    piece(record.gradient.data(), record.gradient.size_bytes()),
                    piece(record.name.data(), record.name.size()),
                    piece(record.text.data(), record.text.size()),
                    piece(kZeros, Padding(sizeof header + PayloadSize(record)))};
  std::uint64_t at = end_;
  for (std::span<iovec> left = pieces; !left.empty();) {
    const ssize_t result = ::pwritev(fd_, left.data(), static_cast<int>(left.size()), static_cast<off_t>(at));
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) FailToWrite(path_, errno);  // what is there of the record does not check
    at += static_cast<std::uint64_t>(result);
    std::size_t written = static_cast<std::size_t>(result);
    while (!left.empty() && written >= left[0].iov_len) {
      written -= left[0].iov_len;
      left = left.subspan(1);
    }
    if (!left.empty()) {
      left[0].iov_base = static_cast<std::byte*>(left[0].iov_base) + written;
      left[0].iov_len -= written;
    }
  }
}

// Without its header the record is not found. Where even that cannot be written, the process may find a
// change after a restart that it has not acknowledged, which is no loss.
void PartLog::Withdraw() {
  const Header nothing = {};
  (void)!::pwrite(fd_, &nothing, sizeof nothing, static_cast<off_t>(end_));
}

void PartLog::Restart(std::uint64_t bytes) {
  const std::uint64_t length = std::max(bytes, kFirstLength);
  if (length_ > length && WriteFileHeader(fd_, part_, length) == 0) {
    (void)!::ftruncate(fd_, static_cast<off_t>(length));  // costs only room when it fails
    length_ = length;
  }
  end_ = kBegin;
  suspect_ = false;
}

PartLogReader::PartLogReader(std::filesystem::path path, std::uint64_t part)
    : path_(std::move(path)), part_(part) {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return;
  if (fd < 0) Fail("cannot read {}: {}", path_.string(), std::strerror(errno));
  struct stat info;
  int error = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (error == 0 && info.st_size > 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      error = errno;
    } else {
      bytes_ = {static_cast<const std::byte*>(data), size};
    }
  }
  ::close(fd);
  if (error != 0) Fail("cannot read {}: {}", path_.string(), std::strerror(error));
}

PartLogReader::~PartLogReader() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

// Whether there is room for a header, and one begins there.
bool PartLogReader::HasMagic(std::uint64_t offset) const {
  return offset <= bytes_.size() && bytes_.size() - offset >= sizeof(Header) &&
         std::memcmp(bytes_.data() + offset, kMagic, sizeof kMagic) == 0;
}

std::optional<PartLogReader::Found> PartLogReader::At(std::uint64_t offset) const {
  if (!HasMagic(offset)) return std::nullopt;
  const std::byte* start = bytes_.data() + offset;
  Header header;
  std::memcpy(&header, start, sizeof header);
  if (!HasRoom(header, bytes_.size() - offset - sizeof header)) return std::nullopt;
  const std::uint64_t floats = header.floats * sizeof(float);
  GroupList<PartGroup> groups;
  start += sizeof header;
  for (std::uint32_t i = 0; i < header.groups; ++i, start += sizeof(PartGroup)) {
    PartGroup group;
    std::memcpy(&group, start, sizeof group);
    groups.Append(group);
  }
  const auto* texts = reinterpret_cast<const char*>(start) + floats;
  Found found = {
      .record = {.kind = static_cast<LogRecord::Kind>(header.kind),
                 .number = header.number,
                 .version = header.version,
                 .update = {.worker = header.worker,
                            .sequence = header.sequence,
                            .steps = header.steps,
                            .scale = header.scale,
                            .learning_rate = header.learning_rate,
                            .groups = groups,
                            .mark = header.mark == 0 ? std::nullopt : std::optional(header.mark - 1)},
                 .gradient = {reinterpret_cast<const float*>(start), header.floats},
                 .name = {texts, header.name_bytes},
                 .text = {texts + header.name_bytes, header.text_bytes}},
      .part = header.part};
  if (ChecksumOf(header, found.record) != header.checksum) return std::nullopt;
  found.size = PartLog::SizeOf(found.record);
  return found;
}

std::optional<LogRecord> PartLogReader::Next() {
  const std::optional<Found> found = At(offset_);
  if (!found) return std::nullopt;
  if (found->part != part_) {
    Fail("{} holds changes of another part: put the files of each part back into a folder of its own",
         path_.string());
  }
  if (offset_ > PartLog::kBegin && found->record.number != previous_ + 1) return std::nullopt;
  previous_ = found->record.number;
  offset_ += found->size;
  return found->record;
}

std::uint64_t PartLogReader::FirstNumber() const {
  const std::optional<Found> found = At(PartLog::kBegin);
  return found ? found->record.number : 0;
}

std::string PartLogReader::Flaw() const {
  const std::optional<FileHeader> header = ReadFileHeader(bytes_);
  if (!header && bytes_.size() < sizeof(FileHeader)) {
    return fmt::format("{} was cut to {} bytes", path_.string(), bytes_.size());
  }
  if (!header) return fmt::format("{} is damaged at its beginning", path_.string());
  if (bytes_.size() >= header->length) return "";
  return fmt::format("{} was cut to {} bytes, where it had {}", path_.string(), bytes_.size(),
                     header->length);
}

bool PartLogReader::EndsHere() const {
  if (offset_ > bytes_.size() || bytes_.size() - offset_ < sizeof(Header)) return false;
  if (!HasMagic(offset_)) return true;
  // One that is whole here is of an earlier round; one that does not check was never finished.
  Header header;
  std::memcpy(&header, bytes_.data() + offset_, sizeof header);
  return HasRoom(header, bytes_.size() - offset_ - sizeof header);
}

bool PartLogReader::HasLater(std::uint64_t number) const {
  for (std::uint64_t at = offset_; at + sizeof(Header) <= bytes_.size(); at += kAlignment) {
    // Cheaply first: of an old record the number tells enough.
    Header header;
    std::memcpy(&header, bytes_.data() + at, sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) continue;
    if (header.part != part_ || header.number < number) continue;
    if (At(at)) return true;
  }
  return false;
}

}  // namespace trireme
