// How many bits the numbers of a network have while it is computed. The parameters that are learned, their
// optimizer and all sums have 32; with 16, so are rounded
//
//   the weights in use      once for every SetParams
//   activations             as each layer leaves them; they are kept in 16 bits until Backward
//   gradients between layers  in fp16 times a scale, without which small ones would become 0 (LossScale)
//
// Products are summed in 32 bits. Those of bf16 numbers are computed as such where the processor can and layers are wide
// enough (bf16_products.h), all others in 32 bits, where 16 gain memory and bandwidth only; the bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/aligned.h"
#include "trireme/base/half.h"
#include "trireme/nn/dense_kernels.h"

namespace trireme {

// Whether gradients have to be scaled.
inline bool NeedsLossScale(Precision precision) { return precision == Precision::kFp16; }

// to <- from, each as a number of 16 bits has it. Requires a precision of 16 bits.
void RoundTo(Precision precision, const float* from, float* to, std::size_t n);
// In place: dz <- rounded(dz * scale) / scale. `scale` is a power of two.
void RoundGradient(Precision precision, Rows rows, float scale, float* dz);

// What the samples of a pass leave behind at one layer, chunk by chunk: [capacity, width] with a row every `ld`
// floats. In 32 bits chunks are written and read where they stay; in 16 they pass through one chunk of floats.
class KeptRows {
 public:
  KeptRows(Precision precision, int capacity, int chunk, int ld)
      : precision_(precision),
        ld_(ld),
        floats_(static_cast<std::size_t>(precision == Precision::kFp32 ? capacity : chunk) * ld),
        halves_(precision == Precision::kFp32 ? 0 : static_cast<std::size_t>(capacity) * ld) {}

  // Where the chunk that begins with sample `first` is to be written. Valid until the next call of any of these.
  float* Write(int first) {
    return precision_ == Precision::kFp32 ? floats_.data() + At(first) : floats_.data();
  }
  // It was written: the numbers there are then those that Read will give.
  void Keep(Rows rows, int first) {
    if (precision_ != Precision::kFp32) Pack(rows, halves_.data() + At(first));
  }
  const float* Read(Rows rows, int first) {
    if (precision_ == Precision::kFp32) return floats_.data() + At(first);
    Unpack(rows, halves_.data() + At(first));
    return floats_.data();
  }

 private:
  std::size_t At(int first) const { return static_cast<std::size_t>(first) * ld_; }
  void Pack(Rows rows, std::uint16_t* to);
  void Unpack(Rows rows, const std::uint16_t* from);

  Precision precision_;
  int ld_;
  AlignedBuffer<float> floats_;
  AlignedBuffer<std::uint16_t> halves_;
};

}  // namespace trireme
