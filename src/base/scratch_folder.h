// A folder that is gone at the end of the scope, however that comes.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trireme {

class ScratchFolder {
 public:
  // Takes over `path`, which need not exist yet.
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A new one among the temporary files. Throws Error.
inline std::filesystem::path MakeTemporaryFolder() {
  const std::filesystem::path among = std::filesystem::temp_directory_path();
  std::string name = (among / "trireme-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) Fail("cannot make a folder in {}", among.string());
  return name;
}

}  // namespace trireme
