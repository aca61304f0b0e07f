// What tests of `trireme tune` share.
#pragma once

#include <algorithm>
#include <map>

#include "run_util.h"
#include "trireme/tune/sqlite.h"

namespace trireme::testing {

class TuneTest : public CliTest {
 protected:
  // Trials of 2048 steps that count steps, so that their results depend on nothing else. Options of `more` replace these.
  Args Tune(const Args& more = {}) const {
    const std::vector<std::pair<std::string, std::string>> usual = {
        {"--env", "CartPole-v1"}, {"--steps", "2048"},    {"--target", "30"},
        {"--seeds", "2"},         {"--parallel", "2"},    {"--study", Path("study.db")},
        {"--finalists", "2"},     {"--fresh-seeds", "2"}, {"--objective", "steps_to_target"}};
    Args args = {"tune", "--set", "eval_every=512", "--set", "eval_episodes=8"};
    for (const auto& [option, value] : usual) {
      if (std::ranges::find(more, option) == more.end()) args = args + Args{option, value};
    }
    return args + more;
  }
  // On an environment that breaks.
  Args Fragile(const std::string& fault, const Args& more) const {
    return Args{"tune",
                "--env",
                std::string("plugin:") + TRIREME_FRAGILE_PLUGIN + ":Fragile-v0",
                "--target",
                "1000",
                "--seeds",
                "1",
                "--study",
                Path("study.db"),
                "--parallel",
                "1",
                "--env-arg",
                "fault=" + fault} +
           more;
  }
  void Refused(const Args& args, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(::testing::PrintToString(args));
    const Outcome outcome = RunTrireme(args, {.folder = folder_.string()});
    ExpectRefused(outcome, parts);
    EXPECT_EQ(outcome.code, 2);
  }
  // number -> state, and what was proposed.
  std::map<int, std::string> Column(const std::string& sql) const {
    Database database(Path("study.db"));
    Statement rows(database, sql);
    std::map<int, std::string> column;
    while (rows.Next()) column[static_cast<int>(rows.Int(0))] = rows.Text(1);
    return column;
  }
  std::map<int, std::string> States() const { return Column("SELECT number, state FROM trials"); }
  std::map<int, std::string> Proposals() const {
    return Column(
        "SELECT number, group_concat(param_name || '=' || param_value) FROM trials JOIN trial_params USING "
        "(trial_id) "
        "GROUP BY number");
  }
};

}  // namespace trireme::testing
