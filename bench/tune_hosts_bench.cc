// How a search grows with its hosts: trials per second of `trireme tune` with workers on 1, 2 and 4 hosts (network namespaces,
// tests/hosts/network.h), one trial at a time on each. Trials sleep instead of computing (slow_env.c), since the hosts share the
// processors of one machine.
//
//   tune_hosts_bench PROGRAM SLOW_ENV [trials of a host]
//
// Needs the right to make network namespaces.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "network.h"
#include "process.h"

namespace {

using namespace trireme::testing;
using Args = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr Cable kCable{.latency = std::chrono::microseconds(500), .bytes_per_s = 25e6};
constexpr int kMostHosts = 4;

// Trials per second. The search is on a host of its own.
double Rate(const Network& network, const std::string& program, const std::string& env, const fs::path& study,
            int hosts, int trials) {
  const auto search = network.Start(kMostHosts + 1, program,
                                    Args{"tune",
                                         "--env",
                                         "plugin:" + env,
                                         "--study",
                                         study,
                                         "--listen",
                                         Network::Address(kMostHosts + 1) + ":0",
                                         "--parallel",
                                         "0",
                                         "--seeds",
                                         "1",
                                         "--finalists",
                                         "0",
                                         "--method",
                                         "random",
                                         "--trials",
                                         std::to_string(trials),
                                         "--steps",
                                         "256",
                                         "--objective",
                                         "return",
                                         "--set",
                                         "envs=1",
                                         "--set",
                                         "shards=1",
                                         "--set",
                                         "horizon=32",
                                         "--set",
                                         "minibatches=1",
                                         "--set",
                                         "eval_every=0",
                                         "--set",
                                         "eval_episodes=1",
                                         "--json"});
  fs::path address = study;
  address.replace_extension("address");
  if (!search->RunsUntil([&] { return fs::exists(address); })) {
    fmt::print(stderr, "{}\n", search->Err());
    std::exit(1);
  }
  std::vector<std::unique_ptr<Process>> workers;
  for (int host = 1; host <= hosts; ++host)
    workers.push_back(network.Start(host, program, {"tune", "--join", study, "--parallel", "1"}));
  const Outcome outcome = search->Wait(3600);
  for (const auto& worker : workers) worker->Wait(30);
  if (outcome.code != 0) {
    fmt::print(stderr, "{}\n", outcome.err);
    std::exit(1);
  }
  return trials / nlohmann::json::parse(outcome.out)["wall_s"].get<double>();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "tune_hosts_bench PROGRAM SLOW_ENV [trials of a host]\n");
    return 2;
  }
  const int each = argc > 3 ? std::atoi(argv[3]) : 20;
  std::string folder = "/tmp/trireme-tune-hosts-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const Network network(kMostHosts + 1, kCable);
  fmt::print("{:>5} {:>10} {:>12}\n", "hosts", "trials/s", "of one host");
  double one = 0;
  for (const int hosts : {1, 2, 4}) {
    const double rate = Rate(network, fs::absolute(argv[1]), fs::absolute(argv[2]),
                             fs::path(folder) / fmt::format("{}.db", hosts), hosts, each * hosts);
    if (hosts == 1) one = rate;
    fmt::print("{:>5} {:>10.2f} {:>12.2f}\n", hosts, rate, rate / one);
    std::fflush(stdout);
  }
  fs::remove_all(folder);
}
