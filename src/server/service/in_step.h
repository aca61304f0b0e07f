// What the workers of a synchronous run bring to an operation, and what is made of it. No messages here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/server/payload.h"
#include "trireme/server/protocol.h"

namespace trireme {

// The gradients of one round, as they come in, on one server.
class GradientRound {
 public:
  // `range`: the parameters of this server, as many floats of a gradient; behind them there may be statistics.
  // `workers`: a sum of fewer is scaled up.
  GradientRound(PartRange range, int workers) : range_(range), workers_(workers) {}

  // Throws Error if others have brought another number of statistics, or groups that cut the norms otherwise.
  void Add(int rank, const Header& request, const ParameterGroups& groups, AlignedBuffer<float> gradient,
           Deadline now);
  void Remove(int rank) { inputs_.erase(rank); }
  void Clear() { inputs_.clear(); }

  const PartRange& range() const { return range_; }
  bool empty() const { return inputs_.empty(); }
  bool Has(int rank) const { return inputs_.contains(rank); }
  Ranks Present(const Ranks& among) const;
  const Header& RequestOf(int rank) const { return inputs_.at(rank).request; }
  const ParameterGroups& GroupsOf(int rank) const { return inputs_.at(rank).groups; }
  Deadline begun() const { return begun_; }  // when its first gradient came

  // The gradients of these ranks, which are there, added up: as a tree over them, adjacent pairs first, like
  // Communicator's. The result is kept until other ranks are asked for.
  struct Sum {
    Ranks ranks;
    AlignedBuffer<float> values;
    std::vector<double> squares;  // of the segments of the gradient, see GroupNorms
    double norm() const;
  };
  const Sum& SumOf(const Ranks& ranks);

 private:
  struct Input {
    Header request;
    ParameterGroups groups;
    AlignedBuffer<float> gradient;
  };
  PartRange range_;
  int workers_;
  std::map<int, Input> inputs_;  // by rank
  Deadline begun_;
  Sum sum_;
};

// What a worker brought to a collective operation.
struct CollectInput {
  Header request;
  std::vector<double> doubles;
  std::string bytes;
};
// The result: sums of doubles, as a tree over ranks; or what `root` brought; or the bytes of all.
struct Collected {
  std::vector<double> doubles;
  std::string bytes;
};
Collected Combine(const std::map<int, CollectInput>& inputs, Collective operation, int root);

}  // namespace trireme
