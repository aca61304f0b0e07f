// Where each tensor lives inside a flat parameter buffer.
//
// Gradients, optimizer moments and target copies share the layout of the parameters, so everything outside
// nn/ treats them as plain spans. Every tensor starts on a 64-byte boundary; the floats between tensors are
// zero in every buffer and stay zero under every optimizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct TensorInfo {
  std::string name;
  std::vector<int> shape;
  // Columns of a matrix that are stored together: column blocks follow one another, each [rows, columns of
  // the block]. A plain row-major matrix is one block.
  int block = 0;
  std::size_t offset = 0;  // in floats
  std::size_t size = 0;    // product of the shape
};

// Where element (row, column) of a matrix lies, counted from the start of the tensor.
inline std::size_t ElementIndex(const TensorInfo& matrix, int row, int column) {
  const int rows = matrix.shape[0], columns = matrix.shape[1];
  const int first = column / matrix.block * matrix.block;
  const int width = std::min(matrix.block, columns - first);
  return static_cast<std::size_t>(first) * rows + static_cast<std::size_t>(row) * width + (column - first);
}

class ParamLayout {
 public:
  // Appends a tensor and returns its offset.
  std::size_t Add(std::string name, std::vector<int> shape, int block = 0) {
    constexpr std::size_t kFloatsPerLine = 16;
    std::size_t count = 1;
    for (const int extent : shape) count *= static_cast<std::size_t>(extent);
    if (block == 0) block = shape.back();
    tensors_.push_back({std::move(name), std::move(shape), block, size_, count});
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
