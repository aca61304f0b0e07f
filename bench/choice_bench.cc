// What --parallel auto chooses, beside every choice it has, made by hand, for three problems: PPO with a small network, a
// network of two layers of 2048, and a network of half a million parameters on two hosts with 100 Mbit/s between them
// (network namespaces, tests/hosts/network.h; mpirun).
//
//   choice_bench PROGRAM [repeats (3)]
//
// Every choice is run once per repeat, in turn; rates are medians of steps/s while training. The bar: the choice of each
// repeat is within 10 % of the best.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch.h"
#include "network.h"
#include "process.h"

namespace {

using namespace trireme::testing;
using Args = std::vector<std::string>;
using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr Cable kCable{.latency = std::chrono::microseconds(100), .bytes_per_s = 100e6 / 8};

struct Problem {
  std::string name;
  Args common;
  std::vector<Args> choices;
  bool cable = false;
};

const std::vector<Problem> kProblems = {
    {"small PPO",
     {"--algo", "ppo", "--steps", "3000000"},
     {{"--workers", "1"}, {"--workers", "2"}, {"--workers", "2", "--store", "shared"}}},
    {"large dense network",
     {"--algo", "ppo", "--steps", "4096", "--set", "hidden=[2048,2048]", "--set", "envs=32", "--set",
      "horizon=64", "--set", "epochs=2"},
     {{"--workers", "1"},
      {"--workers", "2"},
      {"--workers", "2", "--model-parallel", "tensor=2"},
      {"--workers", "2", "--model-parallel", "pipeline=2"},
      {"--workers", "2", "--store", "shared"}}},
    {"slow cable",
     {"--algo", "a2c", "--workers", "1", "--steps", "640", "--set", "hidden=[704,704]", "--set", "envs=8",
      "--set", "horizon=8", "--set", "rounds=5", "--set", "optimizer=adam"},
     {{"--compress", "none"},
      {"--compress", "fp16"},
      {"--compress", "bf16"},
      {"--compress", "int8"},
      {"--compress", "onebit"},
      {"--compress", "topk=0.01"},
      {"--compress", "powersgd=4"},
      {"--model-parallel", "tensor=2"},
      {"--model-parallel", "pipeline=2"}},
     true},
};

std::string Text(const Args& args) {
  std::string text;
  for (const std::string& arg : args) text += (text.empty() ? "" : " ") + arg;
  return text;
}

// Steps/s of all workers in the time that they trained or waited for each other.
double RateOf(const Json& result) {
  double rate = 0;
  for (const Json& worker : result["per_worker"]) {
    rate += worker["steps"].get<double>() / (worker["busy_s"].get<double>() + worker["idle_s"].get<double>());
  }
  const std::string split = result["model_parallel"];
  const std::size_t equals = split.find('=');
  return equals == std::string::npos ? rate : rate / std::stoi(split.substr(equals + 1));
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const std::string& program)
      : program_(program), folder_(fs::temp_directory_path() / fmt::format("choice_bench-{}", getpid())) {
    fs::create_directories(folder_);
    mpirun_ = MpirunOf("openmpi");
    if (WhyNoNamespaces().empty()) network_ = std::make_unique<Network>(2, kCable);
    if (network_) network_->WriteShell((folder_ / "shell").string());
  }
  ~Bench() { fs::remove_all(folder_); }

  bool CanRun(const Problem& problem) const { return !problem.cable || (network_ && !mpirun_.empty()); }

  Json Run(const Problem& problem, const Args& choice) {
    Args args{"train", "--env", "CartPole-v1", "--json", "--out", folder_ / std::to_string(++runs_)};
    args.insert(args.end(), problem.common.begin(), problem.common.end());
    for (const char* setting : {"eval_every=0", "eval_episodes=1", "checkpoint_every_s=1000"})
      args.insert(args.end(), {"--set", setting});
    args.insert(args.end(), choice.begin(), choice.end());
    const Outcome outcome = problem.cable ? OnHosts(args) : Process(program_, args).Wait(600);
    if (outcome.code == 0) return Json::parse(outcome.out);
    fmt::print(stderr, "{}: {}\n", Text(choice), outcome.err);
    std::exit(1);
  }

 private:
  Outcome OnHosts(const Args& train) {
    Args args{"--allow-run-as-root",
              "--bind-to",
              "none",
              "--host",
              Network::Address(1) + ":1," + Network::Address(2) + ":1",
              "--mca",
              "plm_rsh_agent",
              folder_ / "shell",
              "--mca",
              "orte_tmpdir_base",
              folder_,
              "-n",
              "2",
              program_};
    args.insert(args.end(), train.begin(), train.end());
    return network_->Start(1, mpirun_, args)->Wait(600);
  }

  std::string program_, mpirun_;
  fs::path folder_;
  std::unique_ptr<Network> network_;
  int runs_ = 0;
};

void Measure(Bench& bench, const Problem& problem, int repeats) {
  fmt::print("{}: {}\n", problem.name, Text(problem.common));
  if (!bench.CanRun(problem)) {
    fmt::print("  not measured: no hosts, or no mpirun of Open MPI\n");
    return;
  }
  std::vector<std::vector<double>> rates(problem.choices.size());
  std::vector<Json> automatic;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    automatic.push_back(bench.Run(problem, {"--parallel", "auto"}));
    for (std::size_t i = 0; i < rates.size(); ++i)
      rates[i].push_back(RateOf(bench.Run(problem, problem.choices[i])));
  }
  double best = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    best = std::max(best, Median(rates[i]));
    fmt::print("  {:<40} {:>12.0f} steps/s\n", Text(problem.choices[i]), Median(rates[i]));
  }
  // What was chosen counts by its rate made by hand, so that runs are compared and not minutes.
  for (const Json& run : automatic) {
    const std::string split = run["model_parallel"], codec = run.value("compress", "none");
    std::optional<double> by_hand;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const auto value = [&](const char* flag, const std::string& otherwise) {
        const auto found = std::ranges::find(problem.choices[i], flag);
        return found == problem.choices[i].end() ? otherwise : *(found + 1);
      };
      const int processes = problem.cable ? 2 : 1;
      if (std::stoi(value("--workers", "1")) * processes == run["workers"] &&
          value("--store", "allreduce") == run["store"] && value("--compress", "none") == codec &&
          split.starts_with(value("--model-parallel", "none"))) {
        by_hand = Median(rates[i]);
      }
    }
    fmt::print(
        "  auto: {} workers, {}, {}, {}: predicted {:.0f}, real {:.0f} steps/s; by hand {:.0f}, {:.0f} % "
        "of the best (bar: 90)\n",
        run["workers"].get<int>(), run["store"].get<std::string>(), codec, split,
        run["predicted_steps_per_s"].get<double>(), run["training_steps_per_s"].get<double>(),
        by_hand.value_or(0), 100 * by_hand.value_or(0) / best);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: choice_bench PROGRAM [repeats]\n");
    return 2;
  }
  Bench bench(fs::absolute(argv[1]));
  for (const Problem& problem : kProblems) Measure(bench, problem, argc > 2 ? std::atoi(argv[2]) : 3);
}
