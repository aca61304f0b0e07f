// How experience keeps an observation and the mask that belongs to it: one row of whole floats,
//
//   [observation | mask | padding]
//
// as the environment gives them, but for floats that are to be kept in 16 bits (EnvSpec::kept). A row of floats
// without a mask is nothing but the observation, and a network reads it where it lies; others are unpacked, a
// pass at a time: bytes (kByteScale) and numbers of 16 bits become floats then.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/env/spec.h"

namespace trireme {

class RowLayout {
 public:
  explicit RowLayout(const EnvSpec& env);
  // Of observations that are so many floats, without masks.
  explicit RowLayout(int floats);

  std::size_t width() const { return width_; }  // floats of a row
  std::size_t obs_size() const { return obs_size_; }
  std::size_t mask_size() const { return mask_size_; }  // bytes; 0: no masks
  bool plain() const { return plain_; }                 // the row is the observation
  bool of_bytes() const { return obs_.type == ObsType::kUint8; }

  // `n` observations, and their masks where there are any, to rows.
  void Pack(const std::byte* obs, const std::uint8_t* masks, std::size_t n, float* rows) const;

  // The observations of `n` rows as a network reads them, [n, obs_size]: in place, or in `scratch`.
  const float* ReadObs(const float* rows, std::size_t n, std::vector<float>& scratch) const {
    if (plain_) return rows;
    if (scratch.size() < n * obs_size_) scratch.resize(n * obs_size_);
    for (std::size_t i = 0; i < n; ++i) UnpackObs(rows + i * width_, scratch.data() + i * obs_size_);
    return scratch.data();
  }
  // Their masks, [n, mask_size], in `scratch`; null where there are none.
  const std::uint8_t* ReadMasks(const float* rows, std::size_t n, std::vector<std::uint8_t>& scratch) const;

  // The same of rows anywhere: row i is rows + index[i] * width.
  void GatherObs(const float* rows, std::span<const int> index, std::span<float> to) const;
  const std::uint8_t* GatherMasks(const float* rows, std::span<const int> index,
                                  std::vector<std::uint8_t>& scratch) const;

  void UnpackObs(const float* row, float* to) const;
  const std::uint8_t* MaskOf(const float* row) const {
    return reinterpret_cast<const std::uint8_t*>(row) + obs_bytes_;
  }

 private:
  bool halves() const { return kept_ != Precision::kFp32; }

  ObsSpec obs_;
  Precision kept_;
  std::size_t obs_size_, obs_bytes_, mask_size_, width_;  // obs_bytes_: of a row
  bool plain_;
};

}  // namespace trireme
