// Memory that processes share by a descriptor. It has no name, so nothing is left of it when they end, however.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace trireme {

class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

class SharedMemory {
 public:
  // All zero. Throws Error when there is not that much memory, and says what it is for.
  SharedMemory(std::size_t bytes, const std::string& purpose);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::size_t size_;
  std::byte* data_ = nullptr;
};

// A descriptor of memory that holds these bytes, and the bytes of one. Throw Error.
UniqueFd MemoryOf(const std::string& bytes, const std::string& purpose);
std::string BytesOf(int fd);

}  // namespace trireme
