// A search from its settings to its result: proposes trials, runs them in processes of their own, keeps them in a study, ends poor
// ones early, and runs the best again on fresh seeds.
//
// Trials that crash, diverge or hang are recorded as failures and end nothing else. The same command goes on with a study that was
// interrupted or killed, and may run several times at once on one file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/rpc/transport.h"
#include "trireme/train/run_config.h"
#include "trireme/tune/objective.h"
#include "trireme/tune/space.h"
#include "trireme/tune/study.h"

namespace trireme {

// How trials are proposed, and how poor ones end early.
struct TuneMethod {
  enum class Stopping { kNever, kRungs, kBrackets, kPopulation };
  std::string_view name, sampler;
  Stopping stopping;
  std::string_view help;
};
// The first is the default.
inline constexpr TuneMethod kTuneMethods[] = {
    {"asha", "tpe", TuneMethod::Stopping::kRungs, "tpe, and poor trials end early at rungs"},
    {"hyperband", "tpe", TuneMethod::Stopping::kBrackets,
     "the same, with brackets that trust early rungs less and less"},
    {"tpe", "tpe", TuneMethod::Stopping::kNever,
     "tree-structured Parzen estimator: near what was good, far from what was not"},
    {"random", "random", TuneMethod::Stopping::kNever, "points that fill the space evenly"},
    {"grid", "grid", TuneMethod::Stopping::kNever, "every point of a grid"},
    {"cmaes", "cmaes", TuneMethod::Stopping::kNever, "CMA-ES: a normal distribution that moves and narrows"},
    {"pbt", "random", TuneMethod::Stopping::kPopulation,
     "population-based training: members train on, poor ones from the weights of good ones with settings a "
     "little off"},
};
// Throws Error.
const TuneMethod& FindTuneMethod(std::string_view name);

struct TuneOptions {
  std::filesystem::path study = {};
  const TuneMethod* method = &kTuneMethods[0];
  int trials = 100;      // of the study, those of earlier calls included
  double hours = 0;      // after which no trial begins, and those that run wait for another call; 0: no limit
  int parallel = 1;      // processes of this one at a time
  int seeds = 3;         // of a trial: `seed`, `seed` + 1, ...
  int finalists = 5;     // of the best, to be run again
  int fresh_seeds = 10;  // for that: those after the seeds of trials
  int grid_levels = 3;
  int population = 10;     // method pbt: members, which train for trials / population stretches
  double silence_s = 300;  // after which a trial that says nothing has hung
  std::vector<std::string> command = {};  // of a trial process: TrialProcess
  // Where workers that join (join.h) find the search; empty: nowhere. `listening` is told the address.
  std::string listen = {};
  Transport* transport = nullptr;
  Security security = {};
  int awaited =
      0;  // streams of workers that come for sure: the search stays until they have heard of its end
  std::function<void(const std::string& address)> listening = [](const std::string&) {};
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for people
};

// A trial that was run again, or the best one as it was.
struct Finalist {
  int number = 0;
  Point point = {};
  Score found = {};                    // by its trial
  std::optional<Score> fresh = {};     // on fresh seeds
  std::vector<SeedResult> seeds = {};  // those of `fresh`, or else of the trial
};

struct TuneResult {
  int trials = 0, complete = 0, pruned = 0, failed = 0;
  std::vector<Finalist> finalists = {};  // the best first
  std::filesystem::path trained = {};    // method pbt: the run of the best member
  bool unfinished = false;               // method pbt: it was left before the last stretch
  bool interrupted = false;
  double wall_s = 0, tuner_cpu_s = 0;   // of this call; processor time without that of trials
  std::vector<StudyTrial> all = {};     // by number
  std::vector<PastTrial> history = {};  // the same
};

// `settings` are what trials have in common; resolved, with what they may not search held. Blocks. Throws Error, also when no trial
// comes to its end.
TuneResult Tune(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options);

// The settings of a point as a preset: all that are not defaults, and all that are searched. `about` becomes comments.
std::string PresetOf(const RunSettings& settings, const Space& space, const Point& point,
                     const std::string& about);

}  // namespace trireme
