// Where each tensor lives inside a flat parameter buffer.
//
// Gradients, optimizer moments and target copies share the layout of the parameters, so everything outside
// nn/ treats them as plain spans. Every tensor starts on a 64-byte boundary; the floats between tensors are
// zero in every buffer and stay zero under every optimizer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct TensorInfo {
  std::string name;
  std::vector<int> shape;
  std::size_t offset = 0;  // in floats
  std::size_t size = 0;    // product of the shape
};

class ParamLayout {
 public:
  // Appends a tensor and returns its offset.
  std::size_t Add(std::string name, std::vector<int> shape) {
    constexpr std::size_t kFloatsPerLine = 16;
    std::size_t count = 1;
    for (const int extent : shape) count *= static_cast<std::size_t>(extent);
    tensors_.push_back({std::move(name), std::move(shape), size_, count});
    size_ += (count + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
    return tensors_.back().offset;
  }
  // Floats in a buffer of this layout.
  std::size_t size() const { return size_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::size_t size_ = 0;
};

}  // namespace trireme
