// Lines of text over a socket to another process.
//
// Thread safety: one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

class LineSocket {
 public:
  // Takes over the descriptor.
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  ~LineSocket();
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;

  int descriptor() const { return descriptor_; }
  // With the end of the line. False: the other side is gone.
  bool Write(std::string_view line);
  // Blocks for the next line, without its end; nothing: the other side is gone, or says more than kLongest.
  std::optional<std::string> Read();
  // Takes what there is without blocking. False: the other side is gone, and what is left are the lines of TakeLine.
  bool Receive();
  std::optional<std::string> TakeLine();

  static constexpr std::size_t kLongest = 1 << 20;

 private:
  int descriptor_;
  std::string received_;
};

}  // namespace trireme
