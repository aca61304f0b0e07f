#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>

#include "trireme/base/config.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/json_output.h"
#include "trireme/cli/run_flags.h"
#include "trireme/train/render.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

struct EvalFlags {
  std::string run;
  std::optional<std::string> which, episodes, seed, render, render_episodes;
  bool json = false;
};

constexpr EnumName<Which> kWhichNames[] = {{"best", Which::kBest}, {"last", Which::kLast}};

struct EvalConfig {
  Which which = Which::kBest;
  int episodes = 100;
  std::uint64_t seed = 0;
  int render_episodes = 1;

  void Fields(ConfigFields& field) {
    field("which", which, "the policy of the best evaluation or the last one", kWhichNames);
    field("episodes", episodes, "how many episodes", Between(1, 100'000));
    field("seed", seed, "seed of the episodes");
    field("render_episodes", render_episodes, "how many of them are drawn", Between(1, 1000));
  }
};

// Both return the exit code.
int Interrupted(const EvalFlags& flags) {
  std::fflush(stdout);  // the result, where only pictures are missing
  fmt::print(stderr, "interrupted; {}\n",
             flags.render ? *flags.render + " was not written" : "the evaluation did not come to its end");
  return InterruptedCode();
}

int Render(const EvalFlags& flags, const EvalConfig& config, const RunSettings& settings,
           const RunFolder& folder) {
  const std::atomic<bool>& stop = StopOnSignals();
  const auto episodes = RenderRun(settings, folder,
                                  {.out = *flags.render,
                                   .which = config.which,
                                   .seed = config.seed,
                                   .episodes = config.render_episodes,
                                   .stop = [&] { return stop.load(); }});
  if (!episodes) return Interrupted(flags);
  for (std::size_t i = 0; !flags.json && i < episodes->size(); ++i) {
    fmt::print("{}: episode {}, {} steps, return {:.2f}\n", *flags.render, i + 1, (*episodes)[i].steps,
               (*episodes)[i].episode_return);
  }
  return 0;
}

int RunEval(const EvalFlags& flags) {
  const JsonOutput json(flags.json);
  const RunFolder folder = RunFolder::Open(flags.run);
  const std::unique_ptr<RunSettings> settings = ReadRunSettings(folder);
  settings->ForgetSplit();
  settings->Resolve();
  EvalConfig config{.seed = settings->run.seed};
  ConfigFields fields;
  fields.Add(config);
  if (flags.which) fields.Set("which", *flags.which, "--which");
  if (flags.episodes) fields.Set("episodes", *flags.episodes, "--episodes");
  if (flags.seed) fields.Set("seed", *flags.seed, "--seed");
  if (flags.render_episodes) fields.Set("render_episodes", *flags.render_episodes, "--render-episodes");
  if (flags.render_episodes && !flags.render) Fail("--render-episodes is for --render");
  if (flags.render) CheckRenderable(*settings, *flags.render);
  const std::optional<RunFacts> evaluated =
      EvaluateRun(*settings, folder, config.which, config.episodes, config.seed, &StopOnSignals());
  if (!evaluated) return Interrupted(flags);
  const RunFacts& facts = *evaluated;
  if (config.which == Which::kBest && facts.which != "best") {
    fmt::print(stderr, "{} has kept no best policy: this is the last one\n", folder.path().string());
  }
  if (flags.json) {
    json.Print(ResultJson(facts));
  } else {
    fmt::print("{} on {}, {} policy, after {} steps: {:.2f} +- {:.2f} over {} episodes\n", facts.algo,
               facts.task(), facts.which, facts.steps, facts.eval_return_mean, facts.eval_return_std,
               facts.eval_episodes);
    if (facts.eval_cut_off > 0) {
      fmt::print("{}\n",
                 DescribeCutOff(facts.eval_cut_off, facts.eval_episodes, settings->run.eval_max_steps));
    }
  }
  return flags.render ? Render(flags, config, *settings, folder) : 0;
}

}  // namespace

Command AddEvalCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("eval", "Evaluate the policy of a run");
  auto flags = std::make_shared<EvalFlags>();
  command.RequiredOption("run", flags->run, "folder of the run");
  command.Option("--which", flags->which, "policy of the best evaluation, or last: best or last (best)");
  command.Option("--episodes", flags->episodes, "how many episodes (100)");
  command.Option("--seed", flags->seed, "seed of the episodes (the run's own)");
  command.Option(
      "--render", flags->render,
      "draw an episode: out.gif, out.mp4, or frames/ for PNG files; nothing that is there is replaced");
  command.Option("--render-episodes", flags->render_episodes, "how many, one after the other (1)");
  command.Flag("--json", flags->json, "print the result as one line of JSON");
  return [flags] { return RunEval(*flags); };
}

}  // namespace trireme
