#include <fmt/format.h>

#include <memory>

#include "trireme/algo/algorithm.h"
#include "trireme/cli/commands.h"
#include "trireme/train/run_config.h"

namespace trireme {
namespace {

std::string Actions(const AlgorithmEntry& entry) {
  std::string text;
  const auto add = [&](bool can, const char* what) {
    if (can) text += fmt::format("{}{}", text.empty() ? "" : ", ", what);
  };
  add(entry.discrete, "discrete");
  add(entry.continuous, "continuous");
  add(entry.multi_discrete, "multi-discrete");
  add(entry.masks, "masks");
  return text;
}

void ListAlgorithms() {
  for (const AlgorithmEntry& entry : AllAlgorithms()) {
    fmt::print("{:<10} {}\n", entry.name, entry.help);
    fmt::print("{:<10} actions: {}\n", "", Actions(entry));
    fmt::print("{:<10} metrics: {}\n", "", entry.metrics);
  }
  for (const System& system : kSystems) {
    fmt::print("{:<10} {}: {} with --store {}\n", system.name, system.help, system.algo, system.store);
  }
  fmt::print("\nThe settings of one: trireme algos NAME\n");
}

void PrintSettings(const std::string& name, bool markdown) {
  const std::unique_ptr<AlgorithmSettings> algorithm = FindAlgorithm(name).make_settings();
  RunConfig run;
  run.algo = name;
  ConfigFields fields;
  fields.Add(run);
  fields.Add(*algorithm);
  fmt::print("{}", markdown ? fields.ToMarkdown() : fields.Help());
}

// The settings of all runs once, then those of each algorithm.
void PrintAllSettings() {
  RunConfig run;
  ConfigFields of_runs;
  of_runs.Add(run);
  fmt::print("## Every run\n\n{}", of_runs.ToMarkdown());
  for (const AlgorithmEntry& entry : AllAlgorithms()) {
    const std::unique_ptr<AlgorithmSettings> algorithm = entry.make_settings();
    ConfigFields fields;
    fields.Add(*algorithm);
    fmt::print("\n## {}: {}\n\n{}", entry.name, entry.help, fields.ToMarkdown());
  }
}

}  // namespace

Command AddAlgosCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("algos", "List the algorithms, or the settings of one");
  auto name = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  command.Option("name", *name, "show the settings of this algorithm");
  command.Flag("--markdown", *markdown, "as Markdown tables; without a name, all settings of all algorithms");
  return [name, markdown] {
    if (!name->empty()) {
      PrintSettings(*name, *markdown);
    } else if (*markdown) {
      PrintAllSettings();
    } else {
      ListAlgorithms();
    }
    return 0;
  };
}

}  // namespace trireme
