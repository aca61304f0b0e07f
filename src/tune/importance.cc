#include "trireme/tune/importance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "trireme/tune/samplers.h"

namespace trireme {
namespace {

constexpr int kTrees = 100, kSmallestLeaf = 3;

struct Samples {
  std::size_t parameters = 0;
  std::vector<double> places = {};  // [samples, parameters]
  std::vector<double> ranks = {};   // 0: the best, 1: the worst

  double Place(int sample, std::size_t parameter) const {
    return places[static_cast<std::size_t>(sample) * parameters + parameter];
  }
};

// A tree that splits at random places: of one for each parameter, the split after which ranks vary least.
class Tree {
 public:
  Tree(const Samples& samples, std::vector<int> members, RandomStream& draws) : samples_(samples) {
    Grow(members, draws);
  }

  // With the value of `parameter` taken from another sample.
  double Foretell(int sample, std::size_t parameter, int other) const {
    std::size_t node = 0;
    while (nodes_[node].parameter >= 0) {
      const auto split = static_cast<std::size_t>(nodes_[node].parameter);
      const double place = samples_.Place(split == parameter ? other : sample, split);
      node = static_cast<std::size_t>(place < nodes_[node].value ? nodes_[node].low : nodes_[node].high);
    }
    return nodes_[node].value;
  }

 private:
  struct Node {
    int parameter = -1;  // -1: a leaf, whose mean is `value`
    double value = 0;    // where it splits
    int low = 0, high = 0;
  };

  static double Spread(double sum, double squares, int count) { return squares - sum * sum / count; }

  int Grow(std::span<int> members, RandomStream& draws) {
    const auto index = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
    double sum = 0, best = std::numeric_limits<double>::infinity();
    for (const int sample : members) sum += samples_.ranks[static_cast<std::size_t>(sample)];
    Node node{.value = sum / static_cast<double>(members.size())};
    for (std::size_t p = 0; p < samples_.parameters; ++p) {
      const auto [least, most] =
          std::ranges::minmax(members, {}, [&](int sample) { return samples_.Place(sample, p); });
      const double low = samples_.Place(least, p), high = samples_.Place(most, p);
      const double at = low + draws.NextUniform() * (high - low);
      double sums[2] = {}, squares[2] = {};
      int counts[2] = {};
      for (const int sample : members) {
        const double rank = samples_.ranks[static_cast<std::size_t>(sample)];
        const int side = samples_.Place(sample, p) < at ? 0 : 1;
        sums[side] += rank;
        squares[side] += rank * rank;
        ++counts[side];
      }
      if (std::min(counts[0], counts[1]) < kSmallestLeaf) continue;
      const double spread = Spread(sums[0], squares[0], counts[0]) + Spread(sums[1], squares[1], counts[1]);
      if (spread >= best) continue;
      best = spread;
      node.parameter = static_cast<int>(p);
      node.value = at;
    }
    if (node.parameter >= 0) {
      const auto split = static_cast<std::size_t>(node.parameter);
      const auto middle = std::partition(members.begin(), members.end(), [&](int sample) {
        return samples_.Place(sample, split) < node.value;
      });
      node.low = Grow({members.begin(), middle}, draws);
      node.high = Grow({middle, members.end()}, draws);
    }
    nodes_[static_cast<std::size_t>(index)] = node;
    return index;
  }

  const Samples& samples_;
  std::vector<Node> nodes_;
};

Samples SamplesOf(const Space& space, std::span<const PastTrial> history) {
  std::vector<int> ranked = Ranked(history);
  std::erase_if(ranked, [&](int i) {
    return history[static_cast<std::size_t>(i)].outcome == PastTrial::Outcome::kFailed;
  });
  Samples samples{.parameters = space.size()};
  for (std::size_t r = 0; r < ranked.size(); ++r) {
    const Point& point = history[static_cast<std::size_t>(ranked[r])].point;
    for (std::size_t p = 0; p < space.size(); ++p)
      samples.places.push_back(std::isnan(point[p]) ? 0.5 : space.parameters()[p].ToUnit(point[p]));
    samples.ranks.push_back(static_cast<double>(r) /
                            static_cast<double>(std::max<std::size_t>(1, ranked.size() - 1)));
  }
  return samples;
}

}  // namespace

std::vector<double> Importance(const Space& space, std::span<const PastTrial> history, std::uint64_t seed) {
  const Samples samples = SamplesOf(space, history);
  const auto count = static_cast<int>(samples.ranks.size());
  if (samples.ranks.size() < kFewestForImportance) return {};
  std::vector<double> worse(space.size());
  for (int t = 0; t < kTrees; ++t) {
    RandomStream draws(seed, Purpose::kTune, static_cast<std::uint32_t>(t), ~std::uint64_t{0} >> 8);
    std::vector<int> seen, unseen;
    for (int i = 0; i < count; ++i) (draws.NextUniform() < 2.0 / 3 ? seen : unseen).push_back(i);
    if (seen.size() < 2 * kSmallestLeaf || unseen.size() < 2) continue;
    const Tree tree(samples, seen, draws);
    std::vector<int> mixed = unseen;
    for (std::size_t i = mixed.size() - 1; i > 0; --i)
      std::swap(mixed[i], mixed[draws.NextBelow(static_cast<std::uint32_t>(i + 1))]);
    for (std::size_t p = 0; p < space.size(); ++p) {
      for (std::size_t i = 0; i < unseen.size(); ++i) {
        const double rank = samples.ranks[static_cast<std::size_t>(unseen[i])];
        const auto wrong = [&](int other) { return std::pow(tree.Foretell(unseen[i], p, other) - rank, 2); };
        worse[p] += wrong(mixed[i]) - wrong(unseen[i]);
      }
    }
  }
  for (double& share : worse) share = std::max(0.0, share);
  const double all = std::accumulate(worse.begin(), worse.end(), 0.0);
  if (!(all > 0)) return {};
  for (double& share : worse) share /= all;
  return worse;
}

}  // namespace trireme
