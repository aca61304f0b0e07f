#include "trireme/base/scratch_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "trireme-scratch-";
constexpr int kMostTries = 100;  // others take a new folder for an abandoned one

fs::path TemporaryFiles() {
  std::error_code error;
  fs::path path = fs::temp_directory_path(error);
  if (!error) return path;
  const char* set = std::getenv("TMPDIR");
  Fail("the folder for temporary files, {}, cannot be used: {}. Set TMPDIR to one that can be written",
       set == nullptr ? "/tmp" : set, error.message());
}

bool IsOwnFolder(const fs::path& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

// A living process holds the claim on its folder.
void RemoveAbandoned(const fs::path& among) {
  for (const fs::path& path : ListFolder(among)) {
    if (!path.filename().string().starts_with(kPrefix) || !IsOwnFolder(path)) continue;
    try {
      const FolderClaim claim = FolderClaim::Try(path);
      std::error_code ignored;
      if (claim.alone()) fs::remove_all(path, ignored);
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace

ScratchFolder::ScratchFolder() {
  const fs::path among = TemporaryFiles();
  RemoveAbandoned(among);
  for (int i = 0; i < kMostTries; ++i) {
    std::string name = (among / fmt::format("{}XXXXXX", kPrefix)).string();
    if (::mkdtemp(name.data()) == nullptr) {
      Fail("cannot make a folder in {}: {}. Set TMPDIR to one that can be written", among.string(),
           std::strerror(errno));
    }
    claim_ = FolderClaim::Try(name);
    if (!claim_.held()) continue;
    path_ = name;
    return;
  }
  Fail("cannot keep a folder in {}: somebody removes it. Set TMPDIR to another one", among.string());
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace trireme
