// What the fuzz targets share. An input is a list of numbers and texts, read from its beginning; behind its
// end there are zeros and empty texts. Every target defines the function that libFuzzer calls, and the inputs
// to begin with.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

// One input. Error is the answer to what makes no sense; whatever else ends a process is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace trireme::fuzz {

// Inputs to begin with, by name; tests/fuzz/corpus holds them.
std::vector<std::pair<std::string, std::string>> Seeds();

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t Byte() { return static_cast<std::uint8_t>(Number(1)); }
  // Of so many bytes, the lowest first.
  std::uint64_t Number(int bytes) {
    std::uint64_t number = 0;
    for (int i = 0; i < bytes && !rest_.empty(); ++i) {
      number |= std::uint64_t{static_cast<unsigned char>(rest_[0])} << (8 * i);
      rest_.remove_prefix(1);
    }
    return number;
  }
  // Below `bound`, from a byte.
  int Choice(int bound) { return Byte() % bound; }
  // A length of two bytes, and as many bytes as that, or as there are.
  std::string Text() { return Take(Number(2)); }
  std::string Rest() { return Take(rest_.size()); }

 private:
  std::string Take(std::size_t size) {
    const std::string_view text = rest_.substr(0, std::min(size, rest_.size()));
    rest_.remove_prefix(text.size());
    return std::string(text);
  }
  std::string_view rest_;
};

// Writes what Input reads.
class InputWriter {
 public:
  InputWriter& Byte(int value) { return Number(static_cast<std::uint64_t>(value), 1); }
  InputWriter& Number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  InputWriter& Text(std::string_view text) {
    Number(text.size(), 2);
    return Rest(text);
  }
  InputWriter& Rest(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

// Without waiting for the disk: there are thousands of them. Not emptied first, because some file systems
// then write at once.
inline void WritePlainly(const std::filesystem::path& path, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const bool written = fd >= 0 &&
                       ::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
                       ::ftruncate(fd, static_cast<off_t>(bytes.size())) == 0;
  if (fd >= 0) ::close(fd);
  if (!written) Fail("cannot write {}", path.string());
}

}  // namespace trireme::fuzz
