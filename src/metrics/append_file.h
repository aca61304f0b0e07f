// A file that grows by whole records.
//
// Every record goes to the operating system before Append returns, so a killed process leaves all earlier
// records and at most one partial one at the end. A record that could not be written whole (disk full) is cut
// off again. Thread safety: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace trireme {

class AppendFile {
 public:
  // Opens or creates `path` and cuts it to its first `keep_bytes` bytes; a shorter file is kept whole.
  // Devices and pipes are appended to as they are. Throws Error naming the path.
  AppendFile(std::filesystem::path path, std::uint64_t keep_bytes);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Cuts it to its first `bytes` bytes, if it is a file and longer. Throws Error naming the path.
  void CutTo(std::uint64_t bytes);

  // Throws Error naming the path; the file then ends where it ended before.
  void Append(std::string_view record);

  // Returns when everything appended is on disk. Throws Error naming the path.
  void Flush();

  // Bytes up to the end of the last whole record.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool regular_ = false;
  std::uint64_t size_ = 0;
};

}  // namespace trireme
