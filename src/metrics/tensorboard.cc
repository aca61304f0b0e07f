#include "trireme/metrics/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/metrics/crc32c.h"

namespace trireme {
namespace {

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

void PutFixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void PutVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutTag(std::string& out, int field, WireType type) { out += static_cast<char>((field << 3) | type); }

void PutBytes(std::string& out, int field, std::string_view bytes) {
  PutTag(out, field, kBytes);
  PutVarint(out, bytes.size());
  out += bytes;
}

double SecondsSinceEpoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// An Event up to, and without, what happened in it.
std::string StartEvent(std::int64_t step) {
  std::string event;
  PutTag(event, 1, kFixed64);
  PutFixed(event, std::bit_cast<std::uint64_t>(SecondsSinceEpoch()), 8);
  PutTag(event, 2, kVarint);
  PutVarint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::string Frame(std::string_view data) {
  std::string record;
  PutFixed(record, data.size(), 8);
  PutFixed(record, MaskedCrc32c(record), 4);
  record += data;
  PutFixed(record, MaskedCrc32c(data), 4);
  return record;
}

std::string HostName() {
  std::array<char, 256> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0 || buffer[0] == '\0') return "localhost";
  std::string name = buffer.data();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// TensorBoard reads the files of a folder in the order of their names, so a new one must sort after the
// others even when they were made within the same second or the clock was set back.
std::filesystem::path NewEventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) Fail("cannot create folder {}: {}", folder.string(), error.message());
  auto seconds = static_cast<std::int64_t>(SecondsSinceEpoch());
  for (const std::filesystem::path& path : ListFolder(folder)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kFilePrefix)) continue;
    constexpr std::int64_t kLatest = 9'999'999'998;  // ten digits, like any name TensorBoard sorts by time
    std::int64_t other = 0;
    const auto parsed = std::from_chars(name.data() + kFilePrefix.size(), name.data() + name.size(), other);
    if (parsed.ec == std::errc() && other <= kLatest) seconds = std::max(seconds, other + 1);
  }
  return folder / fmt::format("{}{:010}.{}.{}", kFilePrefix, seconds, HostName(), ::getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder,
                                     std::optional<std::int64_t> last_kept_step)
    : file_(NewEventFile(folder), 0) {
  std::string version = StartEvent(0);
  PutBytes(version, 3, "brain.Event:2");
  std::string records = Frame(version);
  if (last_kept_step) {
    // A START at step s drops the points at s and after it.
    std::string restart = StartEvent(*last_kept_step + 1);
    std::string session_log;
    PutTag(session_log, 1, kVarint);
    PutVarint(session_log, 1);
    PutBytes(restart, 7, session_log);
    records += Frame(restart);
  }
  file_.Append(records);
}

void TensorBoardWriter::Append(const MetricRow& row) {
  std::string summary;
  for (const auto& [name, number] : row.values()) {
    if (std::isnan(number)) continue;
    std::string value;
    PutBytes(value, 1, name);
    PutTag(value, 2, kFixed32);
    PutFixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)), 4);
    PutBytes(summary, 1, value);
  }
  if (summary.empty()) return;
  std::string event = StartEvent(row.step());
  PutBytes(event, 5, summary);
  file_.Append(Frame(event));
}

}  // namespace trireme
