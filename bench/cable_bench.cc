// What compression brings on a slow cable: A2C with a million parameters on one host, its parameter server on another,
// 100 Mbit/s between them (network namespaces, tests/hosts/network.h). Bytes of an update, gradient and
// parameters together, and environment steps per second, as they are and with codecs.
//
//   cable_bench PROGRAM [updates of fp32 [updates of the others]]
//   cable_bench PROGRAM target CODEC...     time until an evaluation reaches 475, seeds 1 to 5
//
// Needs the right to make network namespaces.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "network.h"
#include "process.h"

namespace {

using namespace trireme::testing;
using Args = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr Cable kCable{.latency = std::chrono::microseconds(100), .bytes_per_s = 100e6 / 8};
constexpr int kBatch = 64;  // steps of an update

struct Figures {
  double bytes = 0;        // of an update
  double steps_per_s = 0;  // between the first row of metrics and the last
  double compress_s = 0, decompress_s = 0;
};

// The lines of a file that are whole.
std::vector<nlohmann::json> Rows(const fs::path& file) {
  std::vector<nlohmann::json> rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// Trains by a server on the other host until it ends. Its result, and what it has left in `out`.
nlohmann::json Train(const Network& network, const std::string& program, const fs::path& out,
                     const std::string& codec, const Args& more) {
  const std::string address = Network::Address(2) + ":7171";
  const auto server = network.Start(2, program, {"server", "--listen", address, "--quiet"});
  Args args{"train",  "--env",  "CartPole-v1", "--algo",     "a2c",    "--store",
            "server", "--sync", "--servers",   address,      "--json", "--workers",
            "1",      "--out",  out,           "--compress", codec};
  for (const char* setting :
       {"hidden=[704,704]", "envs=8", "horizon=8", "rounds=5", "optimizer=adam", "checkpoint_every_s=1000"}) {
    args.insert(args.end(), {"--set", setting});
  }
  args.insert(args.end(), more.begin(), more.end());
  const auto worker = network.Start(1, program, args);
  const Outcome outcome = worker->Wait(3600);
  server->Signal(SIGTERM);
  server->Wait(30);
  if (outcome.code != 0) {
    fmt::print(stderr, "{}: {}\n", codec, outcome.err);
    std::exit(1);
  }
  return nlohmann::json::parse(outcome.out);
}

Figures Measure(const Network& network, const std::string& program, const fs::path& folder,
                const std::string& codec, int updates) {
  const fs::path out = folder / ("run-" + codec);
  const nlohmann::json result = Train(
      network, program, out, codec,
      {"--steps", std::to_string(updates * kBatch), "--set", "eval_every=0", "--set", "eval_episodes=1"});
  const std::vector<nlohmann::json> rows = Rows(out / "metrics.jsonl");
  const double steps = rows.back()["step"].get<double>() - rows.front()["step"].get<double>();
  const double seconds = rows.back()["wall_s"].get<double>() - rows.front()["wall_s"].get<double>();
  return {.bytes = result["bytes_per_round"],
          .steps_per_s = steps / seconds,
          .compress_s = result.value("compress_s", 0.0) / updates,
          .decompress_s = result.value("decompress_s", 0.0) / updates};
}

void PrintFigures(const Network& network, const std::string& program, const fs::path& folder, int plain,
                  int others) {
  struct Row {
    const char* codec;
    double fewer_bytes, more_steps;  // at least; 0: no bar
  };
  fmt::print("{:<11} {:>15} {:>8} {:>6} {:>10} {:>8} {:>6} {:>14} {:>14}\n", "codec", "bytes / update",
             "fewer", "bar", "steps / s", "faster", "bar", "compress ms", "decompress ms");
  Figures first;
  for (const Row& row : {Row{"none", 0, 0},
                         {"fp16", 0, 0},
                         {"int8", 3.5, 3},
                         {"onebit", 15, 8},
                         {"topk=0.01", 20, 8},
                         {"powersgd=4", 0, 0}}) {
    const bool compressed = std::string(row.codec) != "none";
    const Figures figures = Measure(network, program, folder, row.codec, compressed ? others : plain);
    if (!compressed) first = figures;
    const auto bar = [](double value) { return value > 0 ? fmt::format("{:g}", value) : std::string("-"); };
    fmt::print("{:<11} {:>15.0f} {:>7.1f}x {:>6} {:>10.0f} {:>7.1f}x {:>6} {:>14.2f} {:>14.2f}\n", row.codec,
               figures.bytes, first.bytes / figures.bytes, bar(row.fewer_bytes), figures.steps_per_s,
               figures.steps_per_s / first.steps_per_s, bar(row.more_steps), 1e3 * figures.compress_s,
               1e3 * figures.decompress_s);
    std::fflush(stdout);
  }
}

// A run that does not reach the target counts as endless.
void PrintTimesToTarget(const Network& network, const std::string& program, const fs::path& folder,
                        const Args& codecs) {
  fmt::print("{:<11} {:>9} {:>9}   of each seed\n", "codec", "median s", "steps");
  for (const std::string& codec : codecs) {
    std::vector<double> times, steps;
    std::string each;
    for (int seed = 1; seed <= 5; ++seed) {
      const nlohmann::json result =
          Train(network, program, folder / fmt::format("target-{}-{}", codec, seed), codec,
                {"--steps", "200000", "--target", "475", "--seed", std::to_string(seed), "--set",
                 "eval_every=1280", "--set", "eval_episodes=10", "--set", "learning_rate=5e-4"});
      const bool reached = result["reached_target"];
      times.push_back(reached ? result["time_to_target_s"].get<double>()
                              : std::numeric_limits<double>::infinity());
      steps.push_back(result["steps"]);
      each += fmt::format(" {:.1f}", times.back());
    }
    std::ranges::sort(times);
    std::ranges::sort(steps);
    fmt::print("{:<11} {:>9.1f} {:>9.0f}  {}\n", codec, times[times.size() / 2], steps[steps.size() / 2],
               each);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool to_target = argc > 2 && std::string_view(argv[2]) == "target";
  if (argc < 2 || (to_target && argc == 3)) {
    fmt::print(stderr,
               "usage: cable_bench PROGRAM [updates of fp32 [updates of the others]]\n"
               "       cable_bench PROGRAM target CODEC...\n");
    return 2;
  }
  if (const std::string reason = WhyNoNamespaces(); !reason.empty()) {
    fmt::print("not measured: cannot make hosts: {}\n", reason);
    return 0;
  }
  const std::string program = fs::absolute(argv[1]);
  const fs::path folder = fs::temp_directory_path() / fmt::format("cable_bench-{}", getpid());
  fs::create_directories(folder);
  const Network network(2, kCable);
  if (to_target) {
    PrintTimesToTarget(network, program, folder, Args(argv + 3, argv + argc));
  } else {
    PrintFigures(network, program, folder, argc > 2 ? std::atoi(argv[2]) : 30,
                 argc > 3 ? std::atoi(argv[3]) : 200);
  }
  fs::remove_all(folder);
}
