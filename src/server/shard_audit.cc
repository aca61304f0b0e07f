#include "server/shard_audit.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"

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

std::string Part(const fs::path& path, std::uint64_t begin, std::uint64_t size) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(begin));
  std::string part(size, '\0');
  in.read(part.data(), static_cast<std::streamsize>(size));
  part.resize(static_cast<std::size_t>(in.gcount()));
  return part;
}

// Whether the first `bytes` bytes end with the line of `version`, or, if there are none, whether what follows
// may begin with the line of the next version.
bool Belongs(const fs::path& path, std::uint64_t bytes, std::uint64_t version) {
  if (SizeOf(path) < bytes) return false;
  if (bytes == 0) {
    const std::string next = fmt::format("{} ", version + 1);
    return next.starts_with(Part(path, 0, next.size()));
  }
  constexpr std::uint64_t kLongest = 64;  // three numbers of 20 digits
  const std::uint64_t size = std::min(bytes, kLongest);
  std::string end = Part(path, bytes - size, size);
  if (!end.ends_with('\n')) return false;
  end.pop_back();
  return std::string_view(end).substr(end.rfind('\n') + 1).starts_with(fmt::format("{} ", version));
}

}  // namespace

bool ShardAudit::Exists(const fs::path& path) { return SizeOf(path) > 0; }

ShardAudit::ShardAudit(const fs::path& path) : path_(path) {
  RequireFile(path);
  if (Exists(path)) Fail("{} holds another audit: remove it, or choose another file", path.string());
  Open();
}

ShardAudit::ShardAudit(const fs::path& path, std::uint64_t bytes, std::uint64_t version)
    : path_(path), bytes_(bytes), previous_(bytes) {
  RequireFile(path);
  if (!Belongs(path, bytes, version)) {
    Fail(
        "{} is not the audit of this shard, which had {} bytes at version {}: put that file back, or move "
        "this "
        "one away to begin a new one",
        path.string(), bytes, version);
  }
  Open();
}

void ShardAudit::Open() {
  file_.reset();
  file_ = std::make_unique<AppendFile>(path_, bytes_);
}

void ShardAudit::Add(std::uint64_t version, const ShardUpdate& update) {
  if (file_ == nullptr || file_->size() != bytes_) Open();
  char line[64];
  const auto end =
      fmt::format_to_n(line, sizeof line, "{} {} {}\n", version, update.worker, update.sequence).out;
  file_->Append({line, static_cast<std::size_t>(end - line)});
  previous_ = bytes_;
  bytes_ = file_->size();
}

void ShardAudit::TakeBack() noexcept {
  bytes_ = previous_;
  try {
    Open();
  } catch (const Error&) {
  }
}

}  // namespace trireme
