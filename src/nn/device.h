// Where a network is computed, as users name it: `fused`, `cpu`, `cuda` or `cuda:0,cuda:1`.
//
//   fused     this processor, by the kernels of this program: the default
//   cpu       this processor, by libtorch, with one thread for each worker
//   cuda:1    the second CUDA device, by libtorch; `cuda` is the first
//
// Of several devices worker i, counted through all workers of a run, has number i modulo their number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/half.h"

namespace trireme {

struct Device {
  enum class Kind { kFused, kCpu, kCuda };
  Kind kind = Kind::kFused;
  int index = 0;  // of a CUDA device

  bool operator==(const Device&) const = default;
  bool by_torch() const { return kind != Kind::kFused; }
  // "fused", "cpu", "cuda:1".
  std::string name() const;
};

// How a network is computed.
struct Computing {
  Device device = {};
  Precision precision = Precision::kFp32;
};

// What the setting `device` says; at least one. Does not look whether they are there. Throws Error.
std::vector<Device> ParseDevices(std::string_view text);
// The same devices always have the same text.
std::string TextOf(const std::vector<Device>& devices);

}  // namespace trireme
