#include "trireme/base/file.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/base/input_file.h"

namespace trireme {
namespace {

// Owns a file descriptor and, unless it is kept, the file behind it.
class NewFile {
 public:
  NewFile(std::filesystem::path path, int flag)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | flag | O_CLOEXEC, 0644)) {
    if (fd_ < 0) Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  ~NewFile() {
    ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }
  void Write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = ::write(fd_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void Flush() {
    if (::fsync(fd_) != 0) Fail("cannot flush {}: {}", path_.string(), std::strerror(errno));
  }
  void Keep() { kept_ = true; }
  void RenameTo(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      Fail("cannot rename {} to {}: {}", path_.string(), target.string(), std::strerror(errno));
    }
    Keep();
  }

 private:
  std::filesystem::path path_;
  int fd_;
  bool kept_ = false;
};

void FlushFolder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // some file systems do not allow it; the rename itself is already done
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in = OpenInputFile(path);
  std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) Fail("cannot read {}", path.string());
  return content;
}

void WriteFileAtomically(const std::filesystem::path& path, std::initializer_list<std::string_view> parts) {
  NewFile file(path.string() + ".tmp", O_TRUNC);
  for (const std::string_view part : parts) file.Write(part);
  file.Flush();
  file.RenameTo(path);
  FlushFolder(path.parent_path());
}

void WriteNewFile(const std::filesystem::path& path, std::string_view content) {
  NewFile file(path, O_EXCL);
  file.Write(content);
  file.Keep();
}

std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error))
    paths.push_back(entries->path());
  if (error) Fail("cannot list {}: {}", folder.string(), error.message());
  return paths;
}

std::string Sha256Hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace trireme
