// Trains Corridor-v0 by REINFORCE, without a folder: corridor [key=value]...
#include <cstdio>
#include <exception>

#include "corridor.h"
#include "reinforce.h"
#include "trireme/algo/algorithm.h"
#include "trireme/env/registry.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

struct Printer final : trireme::TrainObserver {
  void OnRow(const trireme::MetricRow& row) override {
    std::printf("%8lld steps  return %6.3f\n", static_cast<long long>(row.step()), row.Get("episode_return_mean"));
  }
  void OnEvaluation(std::int64_t, const trireme::Evaluation& evaluation) override {
    std::printf("          evaluation %6.3f +- %.3f\n", evaluation.mean, evaluation.std);
  }
  void OnEnd(const trireme::TrainResult& result) override {
    std::printf("%s: %zu parameters, sha256 %s\n", result.facts.reached_target ? "solved" : "not solved",
                result.params.size(), result.facts.params_sha256.c_str());
  }
};

int main(int argc, char** argv) try {
  trireme::AddEnv(trireme::SoaEntry<Corridor>());
  trireme::AddAlgorithm(ReinforceEntry());

  trireme::RunSettings settings("Corridor-v0", "reinforce");
  settings.fields.ApplyToml(R"(
    workers = 2
    steps = 400_000
    eval_every = 20_000
    target = 0.9
    stop_at_target = true
  )", "main.cc");
  for (int i = 1; i < argc; ++i) settings.fields.ApplyAssignment(argv[i], "");
  settings.Resolve();

  Printer printer;
  return trireme::Train(settings, printer).facts.reached_target ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "corridor: %s\n", error.what());
  return 2;
}
