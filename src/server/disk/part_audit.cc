#include "trireme/server/disk/part_audit.h"

#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void RequireFile(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Fail("the audit {} is not a file: choose another name for it", path.string());
  }
}

std::uint64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::uint64_t SumOf(std::string_view line, std::uint64_t before) {
  return Checksum(std::as_bytes(std::span(line)), before);
}

// Whether what follows an audit without lines may begin with the line of the next version.
bool MayFollow(const fs::path& path, std::uint64_t version) {
  const std::string next = fmt::format("{} ", version + 1);
  std::string begin(next.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return next.starts_with(begin.substr(0, static_cast<std::size_t>(in.gcount())));
}

bool HasLines(const fs::path& path, const PartAudit::Extent& extent) {
  std::ifstream in(path, std::ios::binary);
  PartAudit::Extent found;
  for (std::string line; found.bytes < extent.bytes && std::getline(in, line) && !in.eof();) {
    line += '\n';
    found = {found.bytes + line.size(), SumOf(line, found.sum)};
  }
  return found.bytes == extent.bytes && found.sum == extent.sum;
}

}  // namespace

bool PartAudit::Exists(const fs::path& path) { return SizeOf(path) > 0; }

PartAudit::PartAudit(const fs::path& path) : path_(path) {
  RequireFile(path);
  if (Exists(path)) Fail("{} holds another audit: remove it, or choose another file", path.string());
  Open();
}

PartAudit::PartAudit(const fs::path& path, const Extent& extent, std::uint64_t version)
    : path_(path), extent_(extent), previous_(extent) {
  RequireFile(path);
  if (extent.bytes == 0 ? !MayFollow(path, version) : !HasLines(path, extent)) {
    Fail(
        "{} is damaged, or not the audit of this part, which had {} bytes at version {}: put the right file "
        "back, or move this one away to begin a new one",
        path.string(), extent.bytes, version);
  }
  Open();
}

void PartAudit::Open() {
  file_.reset();
  file_ = std::make_unique<AppendFile>(path_, extent_.bytes);
}

void PartAudit::Add(std::uint64_t version, const PartUpdate& update) {
  if (file_ == nullptr || file_->size() != extent_.bytes) Open();
  char line[64];
  const auto end =
      fmt::format_to_n(line, sizeof line, "{} {} {}\n", version, update.worker, update.sequence).out;
  const std::string_view text(line, static_cast<std::size_t>(end - line));
  file_->Append(text);
  previous_ = extent_;
  extent_ = {file_->size(), SumOf(text, extent_.sum)};
}

void PartAudit::TakeBack() noexcept {
  extent_ = previous_;
  try {
    Open();
  } catch (const Error&) {
  }
}

}  // namespace trireme
