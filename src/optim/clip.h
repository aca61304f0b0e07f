// Clipping a gradient by its L2 norm, or by those of its groups. Pure functions; they neither allocate nor throw.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "trireme/optim/groups.h"

namespace trireme {

// The sum of squares, in double precision and in one fixed order: the same bits on every instruction set and
// for every alignment. Cannot overflow for finite elements; NaN or infinity among them gives NaN or infinity.
double SquaredNorm(std::span<const float> values);

// SquaredNorm() adds blocks of this many elements, one after the other. Whoever holds a part of a vector that
// begins at a block can give the sums of its blocks to someone who adds them all up: the same bits.
inline constexpr std::size_t kNormBlock = 1024;
inline std::size_t NormBlocks(std::size_t size) { return (size + kNormBlock - 1) / kNormBlock; }

// By what a gradient of norm `norm` is to be scaled for it not to exceed max_norm (0: no limit).
float ClipScale(double norm, double max_norm);

// Scales `gradient` down to norm `max_norm` when it is longer; requires max_norm > 0. Returns the norm it
// had. A norm that is not finite is returned as it is and the gradient is left untouched: callers must look.
double ClipByGlobalNorm(std::span<float> gradient, double max_norm);

// The norms of a gradient whose parameters have groups (groups.h), from the sums of squares of segments:
// blocks of kNormBlock parameters, counted from the first of all, cut where a group with a norm of its own
// begins or ends. So the norms, too, can be made of parts that begin at a block.
class GroupNorms {
 public:
  explicit GroupNorms(const ParameterGroups& groups) : groups_(groups) {}

  // How many segments there are in [begin, end), which begins at a block.
  static std::size_t Segments(const ParameterGroups& groups, std::size_t begin, std::size_t end);
  // Their sums, where values[0] is of parameter `begin`. Requires as many sums as segments.
  static void SquaredNorms(const ParameterGroups& groups, std::size_t begin, std::span<const float> values,
                           std::span<double> sums);

  // The sums of the segments of [begin, end). Parts must come in the order of the parameters.
  void Add(std::size_t begin, std::size_t end, std::span<const double> sums);
  // The whole gradient.
  void Add(std::span<const float> gradient);
  // Of the whole gradient. Finite only if all norms are.
  double norm() const;

  // By what the gradient is to be scaled.
  struct Scales {
    std::array<float, 1 + ParameterGroups::kMost> values = {};  // of parameters in no group, then by group
    std::size_t count = 1;

    float common() const { return values[0]; }
    float of_group(std::size_t i) const { return values[1 + i]; }
    std::span<const float> all() const { return {values.data(), count}; }
  };
  // `max_norm`: of the common norm, 0: no limit. Of no use unless norm() is finite.
  Scales ScalesFor(double max_norm) const;

 private:
  static constexpr std::size_t kCommon = ParameterGroups::kMost;
  void Count(std::size_t norm, double sum) {
    squares_[norm] += sum;
    all_ += sum;
  }

  const ParameterGroups& groups_;
  double all_ = 0;
  std::array<double, ParameterGroups::kMost + 1> squares_ = {};  // by group, and the common one
};

// Clips as the groups say and returns the norm that the whole gradient had. `max_norm`: of the common norm, 0:
// no limit. A norm that is not finite is returned as it is and the gradient is left untouched: callers must
// look.
double ClipGradient(std::span<float> gradient, double max_norm, const ParameterGroups& groups);

}  // namespace trireme
