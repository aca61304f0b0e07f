#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/parse.h"
#include "cli/commands.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace trireme {
namespace {

struct EvalFlags {
  std::string run;
  int episodes = 100;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

int RunEval(const EvalFlags& flags) {
  const RunFolder folder = RunFolder::Open(flags.run);
  const std::unique_ptr<RunSettings> settings = ReadRunSettings(folder);
  settings->Resolve();
  if (flags.episodes < 1 || flags.episodes > 100'000)
    Fail("--episodes: expected 1 to 100000, not {}", flags.episodes);
  const RunFacts facts =
      EvaluateRun(*settings, folder, flags.episodes, flags.seed.value_or(settings->run.seed));
  if (flags.json) {
    fmt::print("{}\n", ResultJson(facts));
  } else {
    fmt::print("{} on {} after {} steps: {:.2f} +- {:.2f} over {} episodes\n", facts.algo, facts.env,
               facts.steps, facts.eval_return_mean, facts.eval_return_std, facts.eval_episodes);
  }
  return 0;
}

}  // namespace

Command AddEvalCommand(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate the newest checkpoint of a run");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("run", flags->run, "folder of the run")->required();
  command->add_option("--episodes", flags->episodes, "how many episodes (100)");
  command->add_option("--seed", flags->seed, "seed of the episodes (the run's own)");
  command->add_flag("--json", flags->json, "print the result as one line of JSON");
  return [flags] { return RunEval(*flags); };
}

}  // namespace trireme
