// The norms of a gradient that the members of a group hold in parts.
//
// Where parts are made of whole tensors (a pipeline) the squares are added exactly as for one buffer: in blocks of
// kNormBlock parameters of the whole network. Members give the sums of their own blocks; blocks with parameters of several
// members are sent as they are. So the norm, and with it every clipped update, has the bits of a worker that holds all.
// Otherwise each member adds up its own squares, and the sums of the members are added along their tree.
//
// Groups of parameters are towers or free vectors, or several of them that follow one another.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/optim/clip.h"
#include "trireme/split/network_parts.h"

namespace trireme {

class PartNorms final : public NormMeasure {
 public:
  // `share` outlives it.
  explicit PartNorms(const NetworkShare& share);

  const GroupNorms& Measure(std::span<const float> gradient, const ParameterGroups& groups) override;

 private:
  // Parameters that one member counts and that follow one another, in the whole network and in its part.
  struct Run {
    std::size_t begin, end, part;
    int member;
  };
  void MeasureByBlocks(std::span<const float> gradient, const ParameterGroups& groups);
  void MeasureOwn(std::span<const float> gradient, const ParameterGroups& groups);
  ParameterGroups InWhole(const ParameterGroups& groups) const;
  void FindRuns();
  void FindSegments(const ParameterGroups& groups);

  const NetworkShare& share_;
  bool by_blocks_;         // all tensors are complete
  std::vector<Run> runs_;  // of all members, in the order of the whole network
  std::optional<GroupNorms> norms_;

  // By blocks: segments of the whole network (GroupNorms) for these groups, and where the parameters of those that
  // several members hold lie behind the sums.
  struct Segment {
    std::size_t begin, end;
    const Run* run;      // that has all of it; null: several have
    std::size_t values;  // then: where its values are
  };
  std::optional<ParameterGroups> groups_;
  std::vector<Segment> segments_;
  std::vector<double> exchanged_;
};

}  // namespace trireme
