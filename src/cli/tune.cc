// `trireme tune`: searches settings, in parallel, in a study that survives being killed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/base/file.h"
#include "trireme/base/parse.h"
#include "trireme/base/system.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/json_output.h"
#include "trireme/cli/run_flags.h"
#include "trireme/cli/tune_join.h"
#include "trireme/metrics/progress.h"
#include "trireme/tune/space_file.h"
#include "trireme/tune/study_page.h"
#include "trireme/tune/trial_process.h"
#include "trireme/tune/trial_run.h"
#include "trireme/tune/tuner.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct TuneFlags : RunFlags {
  std::map<std::string, std::string> numbers;  // what was given of TuneNumbers, by option
  std::string method = std::string(kTuneMethods[0].name), objective, space, study;
  std::string trial;  // the socket of a process that runs one
  JoinFlags joining;
  bool show_space = false, json = false;
};

// Options that are numbers.
struct TuneNumbers {
  TuneOptions options = {.study = {}, .command = {}};
  double wait_s = JoinOptions().wait_s;

  void Fields(ConfigFields& field) {
    field("trials", options.trials, "trials of the study, those of earlier calls included (100)",
          Between(1, 1e6));
    field("hours", options.hours, "begin no trial after this time, instead of after --trials",
          Between(0, 1e5));
    field("parallel", options.parallel,
          "trials that run at a time, on a processor each (as many as there are); 0: only those of workers "
          "that join",
          Between(0, 1024));
    field("seeds", options.seeds, "of a trial; settings are as good as their mean minus its error (3)",
          Between(1, 1000));
    field("finalists", options.finalists, "best trials that are run again on fresh seeds; 0: none (5)",
          Between(0, 1000));
    field("fresh_seeds", options.fresh_seeds, "of a finalist (10)", Between(0, 1000));
    field("grid_levels", options.grid_levels, "method grid: values of a setting that has more of them (3)",
          Between(2, 1000));
    field("population", options.population,
          "method pbt: members, that train side by side for trials / population stretches (10)",
          Between(2, 1e5));
    field("silence", options.silence_s, "seconds without a sign after which a trial has hung (300)",
          Between(1, 1e6));
    field("wait", wait_s, "with --join: seconds to wait for a search that does not answer (60)",
          Between(0, 1e9));
  }
};

std::string OptionOf(std::string field) {
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

bool IsPopulation(const TuneOptions& options) {
  return options.method->stopping == TuneMethod::Stopping::kPopulation;
}

TuneNumbers ReadNumbers(const TuneFlags& flags) {
  TuneNumbers numbers;
  numbers.options.parallel = UsableProcessors();
  ConfigFields fields;
  fields.Add(numbers);
  for (const auto& [name, value] : flags.numbers) fields.Set(name, value, OptionOf(name));
  numbers.options.method = &FindTuneMethod(flags.method);
  if (IsPopulation(numbers.options)) {
    if (!flags.numbers.contains("seeds")) numbers.options.seeds = 1;
  } else if (numbers.options.hours > 0 && !flags.numbers.contains("trials")) {
    numbers.options.trials = 1'000'000;
  }
  return numbers;
}

// Settings that --set gives a value are not searched.
std::vector<std::string> Held(const TuneFlags& flags) {
  std::vector<std::string> held;
  for (const std::string& assignment : flags.assignments)
    held.emplace_back(Trim(std::string_view(assignment).substr(0, assignment.find('='))));
  return held;
}

Aim AimOf(const TuneFlags& flags, const RunConfig& run, bool population) {
  const std::string name = !flags.objective.empty()    ? flags.objective
                           : run.target && !population ? "time_to_target"
                                                       : "return";
  if (population && name != "return")
    Fail(
        "--method pbt looks for the best return: its members go on from each other's weights, so none has a "
        "way of its own to a target");
  const Aim aim{ParseObjective(name), run.target.value_or(0), run.steps};
  if (!aim.maximise() && !run.target)
    Fail("--objective {} needs a target: {} says no return at which it is solved, so give one with --target",
         name, run.env);
  if (!aim.maximise() && run.eval_every == 0)
    Fail("--objective {} needs evaluations on the way: set eval_every above 0", name);
  return aim;
}

// Below runs/ unless it was chosen.
fs::path StudyFile(const TuneFlags& flags, const RunConfig& run) {
  if (!flags.study.empty()) {
    const fs::path folder = fs::path(flags.study).parent_path();
    std::error_code error;
    if (!folder.empty() && !fs::is_directory(folder, error))
      Fail("--study {}: there is no folder {}", flags.study, folder.string());
    if (fs::is_directory(flags.study, error)) Fail("--study {} is a folder: name a file", flags.study);
    return flags.study;
  }
  std::string name = fmt::format("tune-{}-{}", run.env, run.algo);
  std::ranges::replace_if(
      name, [](char c) { return c == '/' || c == ':'; }, '-');
  for (int i = 1;; ++i) {
    const fs::path folder = fs::path("runs") / (i == 1 ? name : fmt::format("{}-{}", name, i));
    if (fs::exists(folder)) continue;
    fs::create_directories(folder);
    return folder / "study.db";
  }
}

fs::path PageOf(fs::path study) { return study.replace_extension("html"); }

// Trials run on one processor each, whatever the command has.
void RequireOneProcess(RunConfig& run) {
  if (run.store_entry().on_servers || run.split().splits())
    Fail("trials of tune run in one process each: leave out --store server and model_parallel");
  run.workers = 1;
}

std::string About(const TuneFlags& flags, const RunConfig& run, const Aim& aim, const TuneResult& result) {
  const Finalist& best = result.finalists.front();
  std::string text =
      fmt::format("Trial {} of {} by {}; {} on {} seeds", best.number, result.trials, flags.method,
                  TextOf(aim, best.fresh.value_or(best.found)), best.seeds.size());
  text += best.fresh ? " that no trial had seen.\n" : ", those of the trial.\n";
  if (!aim.maximise()) text += fmt::format("Target {:g} within {} steps.\n", aim.target, run.steps);
  return text;
}

void PrintResult(const TuneResult& result, const Aim& aim, const Space& space, const fs::path& study,
                 const fs::path& preset) {
  fmt::print("{} trials in {}: {} complete, {} ended early, {} failed\n", result.trials,
             FormatDuration(result.wall_s), result.complete, result.pruned, result.failed);
  for (const Finalist& finalist : result.finalists) {
    fmt::print("trial {}: {}", finalist.number, TextOf(aim, finalist.found));
    if (finalist.fresh)
      fmt::print("; on {} fresh seeds {}", finalist.seeds.size(), TextOf(aim, *finalist.fresh));
    fmt::print("\n");
  }
  if (result.finalists.empty()) return;
  fmt::print("best: trial {}: {}\n", result.finalists.front().number,
             space.Describe(result.finalists.front().point));
  if (!result.trained.empty()) fmt::print("trained: {}\n", result.trained.string());
  fmt::print("study: {}\nsettings: {}\nreport: {}\n", study.string(), preset.string(),
             PageOf(study).string());
}

std::string ResultJson(const TuneResult& result, const Aim& aim, const Space& space, const fs::path& study,
                       const fs::path& preset) {
  using Json = nlohmann::ordered_json;
  const auto score_json = [](const Score& score) {
    return Json{
        {"value", score.value}, {"mean", score.mean}, {"error", score.error}, {"missed", score.missed}};
  };
  Json finalists = Json::array();
  for (const Finalist& finalist : result.finalists) {
    Json settings = Json::object();
    for (std::size_t i = 0; i < space.size(); ++i) {
      if (std::isnan(finalist.point[i])) continue;
      const Parameter& parameter = space.parameters()[i];
      if (parameter.categorical()) {
        settings[parameter.name] = parameter.Text(finalist.point[i]);
      } else {
        settings[parameter.name] = finalist.point[i];
      }
    }
    finalists.push_back({{"trial", finalist.number},
                         {"found", score_json(finalist.found)},
                         {"fresh", finalist.fresh ? score_json(*finalist.fresh) : Json(nullptr)},
                         {"settings", settings}});
  }
  return Json{{"study", study.string()},
              {"settings", result.finalists.empty() ? Json(nullptr) : Json(preset.string())},
              {"trained", result.trained.empty() ? Json(nullptr) : Json(result.trained.string())},
              {"objective", NameOf(aim.objective)},
              {"trials", result.trials},
              {"complete", result.complete},
              {"pruned", result.pruned},
              {"failed", result.failed},
              {"interrupted", result.interrupted},
              {"unfinished", result.unfinished},
              {"wall_s", result.wall_s},
              {"tuner_cpu_s", result.tuner_cpu_s},
              {"finalists", finalists}}
      .dump();
}

// Members are compared at the end of each stretch.
void PreparePopulation(const TuneOptions& options, const Aim& aim, RunConfig& run) {
  if (!IsPopulation(options)) return;
  const int stretches = options.trials / options.population;
  if (stretches < 2)
    Fail(
        "--method pbt: {} trials are less than two stretches of a population of {}: say more --trials, or a "
        "smaller --population",
        options.trials, options.population);
  if (aim.steps < stretches)
    Fail("--method pbt: {} steps cannot be cut into {} stretches: say more --steps", aim.steps, stretches);
  run.eval_every = aim.steps / stretches;
}

int RunSearch(const TuneFlags& flags, TuneOptions options, Processes* processes) {
  const JsonOutput json(flags.json);
  const std::unique_ptr<RunSettings> settings = SettingsOfNewRun(flags);
  RequireOneProcess(settings->run);
  const SpaceChanges changes =
      flags.space.empty() ? SpaceChanges() : ReadSpaceFile(ReadFile(flags.space), flags.space);
  const Space space = MakeSpace(settings->fields, changes, Held(flags));
  if (!settings->run.listen.empty() || settings->run.on_replay_servers())
    Fail("trials have no actors but their own: leave out listen and replay_servers");
  settings->Resolve(1, 1);
  if (flags.show_space) {
    fmt::print("{}", space.ToText());
    return 0;
  }
  const Aim aim = AimOf(flags, settings->run, IsPopulation(options));
  PreparePopulation(options, aim, settings->run);
  options.study = StudyFile(flags, settings->run);
  if (!flags.json) options.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const TuneResult result = [&] {
    const JoinPlace place(flags.joining, processes, options);
    return Tune(*settings, space, aim, options);
  }();
  const fs::path preset = fs::path(options.study).replace_extension("best.toml");
  if (!result.finalists.empty()) {
    const std::string best =
        PresetOf(*settings, space, result.finalists.front().point, About(flags, settings->run, aim, result));
    WriteFileAtomically(preset, best);
    const StudyPage page{fmt::format("{} with {}", settings->run.env, settings->run.algo),
                         aim,
                         result.all,
                         result.history,
                         result.finalists,
                         best,
                         IsPopulation(options) ? options.population : 0};
    WriteFileAtomically(PageOf(options.study), StudyPageHtml(page, space));
  }
  if (flags.json) {
    json.Print(ResultJson(result, aim, space, options.study, preset));
  } else {
    PrintResult(result, aim, space, options.study, preset);
    std::fflush(stdout);
  }
  if (result.unfinished && !result.interrupted)
    fmt::print(stderr, "the population has not come to its last stretch: the same command goes on\n");
  if (!result.interrupted) return 0;
  fmt::print(stderr, "interrupted; continue with the same command{}\n",
             flags.study.empty() ? " and --study " + options.study.string() : "");
  return InterruptedCode();
}

// A process that runs trials for a search elsewhere.
JoinOptions WorkerOf(const TuneNumbers& numbers, Processes* processes) {
  JoinOptions options{.parallel = numbers.options.parallel,
                      .wait_s = numbers.wait_s,
                      .command = numbers.options.command,
                      .stop = numbers.options.stop};
  if (processes == nullptr) options.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  return options;
}

void CheckJoin(const TuneFlags& flags, const TuneNumbers& numbers) {
  if (flags.joining.join.empty() && flags.joining.listen.empty() && numbers.options.parallel == 0)
    Fail("--parallel 0 leaves all trials to workers that join: say where with --listen");
  if (flags.joining.join.empty()) return;
  const bool more = !flags.env.empty() || !flags.algo.empty() || !flags.config.empty() || flags.steps ||
                    flags.target || flags.seed || !flags.assignments.empty() || !flags.env_args.empty() ||
                    !flags.study.empty() || !flags.space.empty() || !flags.objective.empty() || flags.store ||
                    flags.show_space || flags.json ||
                    std::ranges::any_of(flags.numbers, [](const auto& number) {
                      return number.first != "parallel" && number.first != "wait";
                    });
  if (more)
    Fail(
        "--join takes all settings from the search: leave out all but --parallel, --wait and what proves who "
        "this is");
  if (!flags.joining.listen.empty()) Fail("--join and --listen are two ends: choose one of them");
  if (numbers.options.parallel == 0) Fail("--join runs trials: --parallel must be above 0");
}

int RunTune(const TuneFlags& flags) {
  if (!flags.trial.empty()) return RunTrial(TrialProcess::kSocket);
  const bool joins = !flags.joining.join.empty();
  Processes* const processes = joins ? nullptr : ConnectProcesses();
  TuneNumbers numbers = ReadNumbers(flags);
  if (processes != nullptr && !flags.numbers.contains("parallel"))
    numbers.options.parallel = processes->processors();
  CheckJoin(flags, numbers);
  numbers.options.stop = &StopOnSignals();
  numbers.options.command = {"/proc/self/exe", "tune", "--trial", "3"};
  if (joins) return RunJoin(flags.joining, WorkerOf(numbers, nullptr));
  if (processes == nullptr || processes->rank() == 0)
    return RunSearch(flags, std::move(numbers.options), processes);
  return flags.show_space ? 0 : RunAlong(flags.joining, *processes, WorkerOf(numbers, processes));
}

std::string MethodsHelp() {
  std::string help;
  for (const TuneMethod& method : kTuneMethods)
    help += fmt::format("{}{}: {}", help.empty() ? "" : "; ", method.name, method.help);
  return help;
}

}  // namespace

Command AddTuneCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("tune", "Search settings: many short trainings in parallel");
  auto flags = std::make_shared<TuneFlags>();
  AddEnvOptions(command, *flags);
  command.Option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command.Option("--store", flags->store, "where parameters live, for a3c and async_dqn");
  command.Option("--method", flags->method, MethodsHelp());
  command.Option("--objective", flags->objective,
                 "time_to_target (if there is a target), steps_to_target, or return");
  command.Option("--space", flags->space, "TOML file that narrows or widens what is searched");
  command.Flag("--show-space", flags->show_space, "print what is searched, and do nothing");
  command.Option("--study", flags->study,
                 "file of the study (a fresh one below runs/); one that exists is gone on with");
  TuneNumbers numbers;
  ConfigFields fields;
  fields.Add(numbers);
  for (const ConfigFields::Field& field : fields.fields()) {
    command.Option(
        OptionOf(field.name),
        [flags, name = field.name](const std::string& value) { flags->numbers[name] = value; }, field.doc);
  }
  command.Option("--steps", flags->steps, "environment steps of a trial");
  command.Option("--target", flags->target, "return to reach (the environment's own)");
  command.Option("--seed", flags->seed, "of the search, and the first seed of every trial");
  command.Option("--config", flags->config, "settings of all trials from a TOML file, over the preset's");
  command.Option("--set", flags->assignments,
                 "key=value, a setting that all trials have; it is not searched");
  flags->joining.AddTo(command);
  command.Flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command.HiddenOption("--trial", flags->trial);
  command.Footer("docs/tuning.md shows how, and what a study holds.");
  return [flags] { return RunTune(*flags); };
}

}  // namespace trireme
