#include <fmt/format.h>

#include <memory>

#include "algo/algorithm.h"
#include "cli/commands.h"
#include "train/run_config.h"

namespace trireme {

Command AddAlgosCommand(CLI::App& app) {
  CLI::App* command = app.add_subcommand("algos", "List the algorithms, or the settings of one");
  auto name = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  command->add_option("name", *name, "show the settings of this algorithm");
  command->add_flag("--markdown", *markdown, "as a Markdown table");
  return [name, markdown] {
    if (name->empty()) {
      for (const AlgorithmEntry& entry : AllAlgorithms()) {
        fmt::print("{:<8} {}\n", entry.name, entry.help);
        fmt::print("{:<8} actions: {}{}{}\n", "", entry.discrete ? "discrete" : "",
                   entry.discrete && entry.continuous ? ", " : "", entry.continuous ? "continuous" : "");
        fmt::print("{:<8} metrics: {}\n", "", entry.metrics);
      }
      for (const System& system : kSystems) {
        fmt::print("{:<8} {}: {} with --store {}\n", system.name, system.help, system.algo, system.store);
      }
      fmt::print("\nThe settings of one: trireme algos NAME\n");
      return 0;
    }
    const std::unique_ptr<AlgorithmSettings> algorithm = FindAlgorithm(*name).make_settings();
    RunConfig run;
    ConfigFields fields;
    fields.Add(run);
    fields.Add(*algorithm);
    fmt::print("{}", *markdown ? fields.ToMarkdown() : fields.Help());
    return 0;
  };
}

}  // namespace trireme
