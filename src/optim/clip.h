// Clipping a gradient by its L2 norm, or by those of its groups. Clipping neither allocates nor throws.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

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
  // A copy of the groups is kept.
  explicit GroupNorms(const ParameterGroups& groups) : groups_(groups) {}

  // The segments of a gradient of `size`.
  struct Segment {
    std::size_t begin, end;
  };
  static std::vector<Segment> SegmentsOf(const ParameterGroups& groups, std::size_t size);
  // How many segments there are in [begin, end), which begins at a block.
  static std::size_t Segments(const ParameterGroups& groups, std::size_t begin, std::size_t end);
  // Their sums, where values[0] is of parameter `begin`. Requires as many sums as segments.
  static void SquaredNorms(const ParameterGroups& groups, std::size_t begin, std::span<const float> values,
                           std::span<double> sums);

  // The sums of the segments of [begin, end). Parts must come in the order of the parameters.
  void Add(std::size_t begin, std::size_t end, std::span<const double> sums);
  // The whole gradient.
  void Add(std::span<const float> gradient) { Add(0, gradient); }
  // Some of it, where values[0] is of parameter `begin`.
  void Add(std::size_t begin, std::span<const float> values);
  // The sums of squares so far. Whoever holds some of the parameters adds those of the others to them.
  std::span<double> sums() { return squares_; }
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
  static constexpr std::size_t kCommon = ParameterGroups::kMost, kAll = kCommon + 1;
  void Count(std::size_t norm, double sum) {
    squares_[norm] += sum;
    squares_[kAll] += sum;
  }

  ParameterGroups groups_;
  std::array<double, kAll + 1> squares_ = {};  // by group, the common one, and of the whole gradient
};

// How the norms of a gradient are found of which this worker holds only a part, with others that hold the rest.
class NormMeasure {
 public:
  virtual ~NormMeasure() = default;
  // Of the whole gradient. `gradient` and `groups` are of the part; all who hold one call it. Valid until the next call.
  virtual const GroupNorms& Measure(std::span<const float> gradient, const ParameterGroups& groups) = 0;
};

// Clips as the groups say and returns the norm that the whole gradient had. `max_norm`: of the common norm, 0:
// no limit. A norm that is not finite is returned as it is and the gradient is left untouched: callers must
// look.
double ClipGradient(std::span<float> gradient, double max_norm, const ParameterGroups& groups);
// The same for a part of a gradient whose norms are known.
double ClipGradient(std::span<float> gradient, double max_norm, const ParameterGroups& groups,
                    const GroupNorms& norms);

}  // namespace trireme
