// What each worker on its own holds of a part, so that it can be sent the difference to what there is now
// (codec/difference.h).
//
// Every answer with parameters has a number, and a request says which answer the worker took last: only if that is
// the one that was sent last does the server know what the worker holds. Otherwise, after a broken stream or an
// answer that nobody waited for, it is sent all parameters.
//
// Takes memory for the parameters once per worker, up to kMostBytes for all of them; whoever comes then is sent
// all parameters every time.
//
// Runs in the server's event loop.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "trireme/base/aligned.h"
#include "trireme/codec/difference.h"

namespace trireme {

class HeldParams {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  // Of `size` parameters. `most_bytes` is for tests.
  HeldParams(const std::string& codec, std::size_t size, std::size_t most_bytes = kMostBytes);

  std::size_t message_bytes() const { return coder_.bytes(size_); }
  // The number of the next answer to anybody.
  std::uint64_t NextNumber() { return ++last_; }
  // For answer `number` to `worker`, which holds what answer `base` gave: writes the message that takes it
  // towards `params`. False: it must be sent all of them, and will hold these.
  bool Encode(std::uint64_t worker, std::uint64_t base, std::uint64_t number, std::span<const float> params,
              std::span<std::byte> message);
  // Answer `number` sends `worker` all of them.
  void Hold(std::uint64_t worker, std::uint64_t number, std::span<const float> params);
  void Forget(std::uint64_t worker) { held_.erase(worker); }

 private:
  struct Held {
    AlignedBuffer<float> params;
    std::uint64_t number = 0;  // of the answer after which the worker holds them
  };
  DifferenceCoder coder_;
  std::size_t size_;
  std::size_t most_workers_;
  std::map<std::uint64_t, Held> held_;  // by worker
  std::uint64_t last_;                  // begins above all that a server had before it was started again
};

}  // namespace trireme
