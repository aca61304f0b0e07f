#include "trireme/tune/population.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/tune/samplers.h"

namespace trireme {
namespace {

constexpr int kShare = 5;            // one of so many is poor, and one of so many is good
constexpr double kResampled = 0.25;  // how often a setting is drawn anew instead of moved
constexpr double kMove = 0.1;        // of the whole range, in its scale

}  // namespace

bool Population::Ready(std::span<const PastTrial> history, int trial) const {
  return trial < size_ ||
         history[static_cast<std::size_t>(trial - size_)].outcome != PastTrial::Outcome::kRunning;
}

Proposal Population::Propose(std::span<const PastTrial> history, int trial, int attempt) const {
  const auto anew = [&] { return space_.At(SpreadPlaces(seed_, space_.size(), trial, attempt)); };
  if (trial < size_) return {.point = anew()};
  // Those of the stretch before that have come to its end, the best first.
  const int first = (StretchOf(trial) - 1) * size_, own = trial - size_;
  std::vector<int> ended;
  for (const int i : Ranked(history)) {
    if (i >= first && i < first + size_ &&
        history[static_cast<std::size_t>(i)].outcome == PastTrial::Outcome::kComplete)
      ended.push_back(i);
  }
  const auto place = std::ranges::find(ended, own) - ended.begin();
  const auto all = static_cast<std::ptrdiff_t>(ended.size());
  const std::ptrdiff_t good = std::max<std::ptrdiff_t>(1, all / kShare), poor = all < 2 ? 0 : good;
  if (place < all - poor) return {.point = history[static_cast<std::size_t>(own)].point, .parent = own};
  if (ended.empty()) return {.point = anew()};  // all have failed
  RandomStream draws = DrawsOf(seed_, trial, 0);
  const int parent = ended[static_cast<std::size_t>(draws.NextBelow(static_cast<std::uint32_t>(good)))];
  return {.point = Perturbed(history[static_cast<std::size_t>(parent)].point, trial, attempt + 1),
          .parent = parent};
}

Point Population::Perturbed(const Point& point, int trial, int attempt) const {
  RandomStream draws = DrawsOf(seed_, trial, attempt);
  Point moved = point;
  for (std::size_t i = 0; i < space_.size(); ++i) {
    const Parameter& parameter = space_.parameters()[i];
    const double anew = draws.NextUniform(), resample = draws.NextUniform(), up = draws.NextUniform();
    if (parameter.shapes) continue;
    if (resample < kResampled || std::isnan(point[i])) {
      moved[i] = parameter.FromUnit(anew);
    } else if (!parameter.categorical()) {
      const int levels = parameter.Levels();
      const double move = levels > 0 ? std::max(kMove, 1.0 / levels) : kMove;  // a value at least
      moved[i] =
          parameter.FromUnit(std::clamp(parameter.ToUnit(point[i]) + (up < 0.5 ? -move : move), 0.0, 1.0));
    }
  }
  space_.Tidy(moved);
  return moved;
}

}  // namespace trireme
