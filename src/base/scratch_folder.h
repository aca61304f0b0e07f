// A folder that is gone at the end of the scope, however that comes.
#pragma once

#include <filesystem>
#include <system_error>
#include <utility>

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

}  // namespace trireme
