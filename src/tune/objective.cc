#include "trireme/tune/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::pair<Objective, std::string_view> kNames[] = {{Objective::kTimeToTarget, "time_to_target"},
                                                             {Objective::kReturn, "return"},
                                                             {Objective::kStepsToTarget, "steps_to_target"}};

}  // namespace

Objective ParseObjective(std::string_view name) {
  for (const auto& [objective, known] : kNames) {
    if (known == name) return objective;
  }
  Fail("--objective {}: expected time_to_target, return or steps_to_target", name);
}

std::string_view NameOf(Objective objective) {
  for (const auto& [known, name] : kNames) {
    if (known == objective) return name;
  }
  return "";
}

double Aim::ValueOf(const SeedResult& seed) const {
  if (objective == Objective::kReturn) return seed.last_return;
  const bool time = objective == Objective::kTimeToTarget;
  if (seed.reached) return time ? seed.seconds_to_target : static_cast<double>(seed.steps_to_target);
  const double away = (target - seed.best_return) / std::max(1.0, std::abs(target));
  const double missing = std::isfinite(away) ? std::clamp(away, 0.0, 1.0) : 1;
  return (time ? kDay : kTimesSteps * static_cast<double>(steps)) * (1 + missing);
}

Score ScoreOf(const Aim& aim, std::span<const SeedResult> seeds) {
  TRIREME_CHECK(!seeds.empty());
  double sum = 0, squares = 0;
  Score score;
  for (const SeedResult& seed : seeds) {
    sum += aim.ValueOf(seed);
    score.missed += !aim.maximise() && !seed.reached;
  }
  score.mean = sum / static_cast<double>(seeds.size());
  for (const SeedResult& seed : seeds) squares += std::pow(aim.ValueOf(seed) - score.mean, 2);
  const auto n = static_cast<double>(seeds.size());
  if (seeds.size() > 1) score.error = std::sqrt(squares / (n - 1) / n);
  score.value = aim.maximise() ? score.mean - score.error : score.mean + score.error;
  return score;
}

std::string TextOf(const Aim& aim, const Score& score) {
  if (score.missed > 0)
    return fmt::format("target missed on {} seed{}", score.missed, score.missed == 1 ? "" : "s");
  if (aim.objective == Objective::kTimeToTarget)
    return fmt::format("{:.3g} +- {:.2g} s", score.mean, score.error);
  if (aim.objective == Objective::kStepsToTarget)
    return fmt::format("{:.0f} +- {:.0f} steps", score.mean, score.error);
  return fmt::format("{:.1f} +- {:.1f}", score.mean, score.error);
}

std::string SeedsToJson(std::span<const SeedResult> seeds) {
  auto list = nlohmann::ordered_json::array();
  for (const SeedResult& seed : seeds) {
    nlohmann::ordered_json entry = {{"seed", seed.seed},
                                    {"steps", seed.steps},
                                    {"seconds", seed.seconds},
                                    {"reached", seed.reached},
                                    {"last_return", seed.last_return},
                                    {"best_return", seed.best_return}};
    if (seed.reached) {
      entry["steps_to_target"] = seed.steps_to_target;
      entry["seconds_to_target"] = seed.seconds_to_target;
    }
    list.push_back(std::move(entry));
  }
  return list.dump();
}

std::vector<SeedResult> SeedsFromJson(const std::string& json) {
  std::vector<SeedResult> seeds;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(json)) {
      const auto number = [&](const char* key) {  // what is not finite is null
        return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : std::nan("");
      };
      SeedResult& seed = seeds.emplace_back();
      seed.seed = entry.at("seed");
      seed.steps = entry.at("steps");
      seed.seconds = number("seconds");
      seed.reached = entry.at("reached");
      seed.last_return = number("last_return");
      seed.best_return = number("best_return");
      if (!seed.reached) continue;
      seed.steps_to_target = entry.at("steps_to_target");
      seed.seconds_to_target = entry.at("seconds_to_target");
    }
  } catch (const nlohmann::json::exception& error) {
    Fail("results of seeds that cannot be read: {}", error.what());
  }
  return seeds;
}

}  // namespace trireme
