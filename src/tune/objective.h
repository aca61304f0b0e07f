// What a search looks for, and what the seeds of a trial say about it.
//
//   return           the last evaluation of a run; more is better
//   time_to_target   seconds of training and evaluating until the first evaluation that reaches the target
//   steps_to_target  environment steps until then
//
// The value of a trial is the mean over its seeds, made worse by the standard error of that mean: of two configurations that are
// equally good on average the more reliable one wins, and one lucky seed is worth little. A seed that does not reach its target
// counts as kDay seconds, or kTimesSteps times all steps, and up to twice that, the further it stayed away: every
// configuration that reaches its target is better than any that does not, and those that do not are still told apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Objective { kTimeToTarget, kReturn, kStepsToTarget };

// Throws Error.
Objective ParseObjective(std::string_view name);
std::string_view NameOf(Objective objective);

// How one seed of a trial ended.
struct SeedResult {
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
  double seconds = 0;
  bool reached = false;
  std::int64_t steps_to_target = 0;  // if reached
  double seconds_to_target = 0;
  double last_return = 0, best_return = 0;
};

struct Aim {
  Objective objective = Objective::kReturn;
  double target = 0;  // unless the objective is the return
  std::int64_t steps = 0;

  bool maximise() const { return objective == Objective::kReturn; }
  double ValueOf(const SeedResult& seed) const;
};

inline constexpr double kDay = 86'400, kTimesSteps = 10;

struct Score {
  double value = 0;  // mean, made worse by error
  double mean = 0, error = 0;
  int missed = 0;  // seeds that did not reach their target
};
// Requires at least one seed.
Score ScoreOf(const Aim& aim, std::span<const SeedResult> seeds);
// "0.113 +- 0.012 s"
std::string TextOf(const Aim& aim, const Score& score);

std::string SeedsToJson(std::span<const SeedResult> seeds);
// Throws Error for what is no such list.
std::vector<SeedResult> SeedsFromJson(const std::string& json);

}  // namespace trireme
