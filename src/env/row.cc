#include "trireme/env/row.h"

#include <algorithm>
#include <cstring>

namespace trireme {

RowLayout::RowLayout(const EnvSpec& env)
    : obs_(env.obs),
      kept_(env.obs.type == ObsType::kFloat32 ? env.kept : Precision::kFp32),
      obs_size_(static_cast<std::size_t>(env.obs.size())),
      obs_bytes_(halves() ? 2 * obs_size_ : env.obs.bytes()),
      mask_size_(env.masks ? static_cast<std::size_t>(env.action.choices()) : 0),
      width_((obs_bytes_ + mask_size_ + sizeof(float) - 1) / sizeof(float)),
      plain_(env.obs.type == ObsType::kFloat32 && !halves() && mask_size_ == 0) {}

RowLayout::RowLayout(int floats) : RowLayout(EnvSpec{.obs = {{floats}}}) {}

void RowLayout::Pack(const std::byte* obs, const std::uint8_t* masks, std::size_t n, float* rows) const {
  if (plain_) {
    std::memcpy(rows, obs, n * obs_bytes_);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    auto* row = reinterpret_cast<std::byte*>(rows + i * width_);
    if (halves()) {
      ToHalf(kept_, reinterpret_cast<const float*>(obs) + i * obs_size_, obs_size_, row);
    } else {
      std::memcpy(row, obs + i * obs_bytes_, obs_bytes_);
    }
    if (mask_size_ > 0) std::memcpy(row + obs_bytes_, masks + i * mask_size_, mask_size_);
    std::fill(row + obs_bytes_ + mask_size_, row + width_ * sizeof(float), std::byte{0});
  }
}

void RowLayout::UnpackObs(const float* row, float* to) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(row);
  if (halves()) return FromHalf(kept_, bytes, obs_size_, to);
  ObsToFloat(obs_, bytes, 1, to);
}

const std::uint8_t* RowLayout::ReadMasks(const float* rows, std::size_t n,
                                         std::vector<std::uint8_t>& scratch) const {
  if (mask_size_ == 0) return nullptr;
  if (scratch.size() < n * mask_size_) scratch.resize(n * mask_size_);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(scratch.data() + i * mask_size_, MaskOf(rows + i * width_), mask_size_);
  }
  return scratch.data();
}

// Rows lie anywhere in memory: a plain loop keeps many cache misses in flight at once.
void RowLayout::GatherObs(const float* rows, std::span<const int> index, std::span<float> to) const {
  const auto row = [&](std::size_t i) { return rows + static_cast<std::size_t>(index[i]) * width_; };
  if (!plain_) {
    for (std::size_t i = 0; i < index.size(); ++i) UnpackObs(row(i), to.data() + i * obs_size_);
    return;
  }
  const std::size_t width = width_;
  for (std::size_t i = 0; i < index.size(); ++i) {
    const float* const from = row(i);
    for (std::size_t k = 0; k < width; ++k) to[i * width + k] = from[k];
  }
}

const std::uint8_t* RowLayout::GatherMasks(const float* rows, std::span<const int> index,
                                           std::vector<std::uint8_t>& scratch) const {
  if (mask_size_ == 0) return nullptr;
  if (scratch.size() < index.size() * mask_size_) scratch.resize(index.size() * mask_size_);
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::memcpy(scratch.data() + i * mask_size_, MaskOf(rows + static_cast<std::size_t>(index[i]) * width_),
                mask_size_);
  }
  return scratch.data();
}

}  // namespace trireme
