// How a learner grows with the hosts of its actors: environment steps per second with actors on 1 to 4 hosts (network namespaces,
// tests/hosts/network.h), beside what each host reaches alone; then with more and more actors, until the learner is the limit,
// beside what `trireme plan` predicts. Environments sleep instead of computing (slow_env.c), since all hosts share the processors of
// one machine. So that what else runs there does not count, neither does the time in which actors, or the learner where it is the
// limit, could have gone on and waited for a processor, as the system says (`quiet`).
//
//   actors_bench PROGRAM SLOW_ENV [seconds of a run, default 8]
//
// Needs the right to make network namespaces.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "network.h"
#include "process.h"

namespace {

using namespace trireme::testing;
using Args = std::vector<std::string>;
using Json = nlohmann::json;
namespace fs = std::filesystem;

// Between two hosts: 1 ms one way, 200 Mbit/s.
constexpr Cable kCable{.latency = std::chrono::microseconds(500), .bytes_per_s = 25e6};
constexpr int kHosts = 4, kLearnerHost = kHosts + 1;
constexpr int kFewActors = 2;  // of a host: far from what the learner can take

struct Prediction {
  double steps_per_s = 0;
  std::string limit;
  Json constants;
};

struct Bench {
  std::string program, env;
  fs::path folder;
  double seconds;
  Network network{kLearnerHost, kCable};
  int runs = 0;

  // Forty passes over all experience, so that it is the learner that has much to do and not the network.
  Args Settings() const {
    return {"--env",     "plugin:" + env + ":Slow-v0",
            "--algo",    "appo",
            "--env-arg", "us=2000",
            "--set",     "envs=64",
            "--set",     "shards=8",
            "--set",     "horizon=20",
            "--set",     "epochs=40",
            "--set",     "minibatches=2",

            "--set",     "hidden=[128,128]"};
  }

  struct Speed {
    double steps_per_s = 0;
    double by_actors = 0, by_learner = 0;  // without the waits for processors of the one or the other
  };
  // With so many actors on each of these hosts, from when all have joined.
  Speed Rate(const std::vector<int>& hosts, int actors) {
    const std::string run = folder / fmt::format("run{}", runs++),
                      at = Network::Address(kLearnerHost) + ":7373";
    Args words = {"train",   "--listen",   at,       "--out", run,
                  "--steps", "1000000000", "--json", "--set", "eval_every=0"};
    const Args settings = Settings();
    words.insert(words.end(), settings.begin(), settings.end());
    const auto learner = network.Start(kLearnerHost, program, words);
    std::vector<std::unique_ptr<Process>> processes;
    for (const int host : hosts) {
      processes.push_back(network.Start(
          host, program, {"actor", "--learner", at, "--actors", std::to_string(actors), "--wait", "60"}));
    }
    const auto all = static_cast<std::size_t>(actors) * hosts.size();
    Await(*learner, [&] { return Count(learner->Err(), " joined") >= all; });
    const std::size_t skipped = Rows(run).size() + 2;
    Await(*learner, [&] { return Rows(run).size() > skipped; });
    const Json first = Rows(run).back();
    const auto waited = [&] {
      double of_actors = 0;
      for (const auto& process : processes) of_actors += WaitedForProcessor(process->pid()).all_s;
      return std::pair(of_actors / static_cast<double>(all), WaitedForProcessor(learner->pid()).busiest_s);
    };
    const auto before = waited();
    Await(*learner, [&] {
      const Json last = Rows(run).back();
      return last["step"] > first["step"] && Wall(last) > Wall(first) + seconds;
    });
    const Json last = Rows(run).back();
    const auto after = waited();
    learner->Signal(SIGINT);
    learner->Wait();
    for (const auto& process : processes) process->Signal(SIGTERM);
    for (const auto& process : processes) process->Wait();
    const double steps = last["step"].get<double>() - first["step"].get<double>(),
                 wall_s = Wall(last) - Wall(first);
    return {steps / wall_s, steps / (wall_s - after.first + before.first),
            steps / (wall_s - after.second + before.second)};
  }
  // Seconds since a process began: of all its threads but those of gRPC, which have names, and of the one that computed most.
  struct Waited {
    double all_s = 0, busiest_s = 0;
  };
  static Waited WaitedForProcessor(pid_t pid) {
    Waited waited;
    double most_ns = 0;
    for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid))) {
      std::ifstream in(task.path() / "schedstat"), name_of(task.path() / "comm");
      double ran_ns = 0, waited_ns = 0;
      std::string name;
      if (!(in >> ran_ns >> waited_ns) || !(name_of >> name) || name != "trireme") continue;
      waited.all_s += 1e-9 * waited_ns;
      if (ran_ns < most_ns) continue;
      most_ns = ran_ns;
      waited.busiest_s = 1e-9 * waited_ns;
    }
    return waited;
  }

  // What plan says of so many actors.
  Prediction Predicted(int actors) const {
    Args words = {"plan",    "--actors",  std::to_string(actors),  "--actor-hosts", std::to_string(kHosts),
                  "--cores", "64",        "--latency-us",          "1000",          "--bandwidth-gbit",
                  "0.2",     "--seconds", std::to_string(seconds), "--json"};
    const Args settings = Settings();
    words.insert(words.end(), settings.begin(), settings.end());
    const Outcome outcome = Process(program, words).Wait(600);
    if (outcome.code != 0) Give(outcome.err);
    const Json json = Json::parse(outcome.out);
    const Json& row = json["rows"].back();
    return {row["steps_per_s"], row["limit"], json["constants"]};
  }

  [[noreturn]] static void Give(const std::string& why) {
    fmt::print(stderr, "actors_bench: {}\n", why);
    std::exit(1);
  }
  static void Await(Process& process, const std::function<bool()>& condition) {
    if (!process.RunsUntil(
            [&] {
              if (condition()) return true;
              usleep(20'000);
              return false;
            },
            300))
      Give(process.Err());
  }
  static std::size_t Count(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
  }
  static std::vector<Json> Rows(const std::string& run) {
    std::vector<Json> rows;
    std::ifstream in(run + "/metrics.jsonl");
    for (std::string line; std::getline(in, line) && !in.eof();) rows.push_back(Json::parse(line));
    return rows;
  }
  static double Wall(const Json& row) { return row["wall_s"]; }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "actors_bench PROGRAM SLOW_ENV [seconds of a run]\n");
    return 2;
  }
  std::string folder = "/tmp/trireme-actors-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  Bench bench{.program = fs::absolute(argv[1]),
              .env = fs::absolute(argv[2]),
              .folder = folder,
              .seconds = argc > 3 ? std::atof(argv[3]) : 8};
  fmt::print("{} actors on each host\n{:>5} {:>9} {:>9} {:>13} {:>12}\n", kFewActors, "hosts", "steps/s",
             "quiet", "sum of alone", "of the sum");
  std::vector<double> alone;
  for (int host = 1; host <= kHosts; ++host) alone.push_back(bench.Rate({host}, kFewActors).by_actors);
  std::vector<int> hosts;
  for (int host = 1; host <= kHosts; ++host) {
    hosts.push_back(host);
    const double sum = std::accumulate(alone.begin(), alone.begin() + host, 0.0);
    const Bench::Speed speed = bench.Rate(hosts, kFewActors);
    fmt::print("{:>5} {:>9.0f} {:>9.0f} {:>13.0f} {:>10.1f} %\n", host, speed.steps_per_s, speed.by_actors,
               sum, 100 * speed.by_actors / sum);
    std::fflush(stdout);
  }
  fmt::print("\n{:>5} {:>7} {:>9} {:>9} {:>12} {:>10} {:>9}\n", "hosts", "actors", "steps/s", "quiet",
             "predicted/s", "limit", "off");
  Json constants;
  for (const int each : {2, 4, 8, 16}) {
    const Prediction predicted = bench.Predicted(kHosts * each);
    constants = predicted.constants;
    const Bench::Speed speed = bench.Rate(hosts, each);
    const double quiet = predicted.limit == "learner" ? speed.by_learner : speed.by_actors;
    fmt::print("{:>5} {:>7} {:>9.0f} {:>9.0f} {:>12.0f} {:>10} {:>+7.1f} %\n", kHosts, kHosts * each,
               speed.steps_per_s, quiet, predicted.steps_per_s, predicted.limit,
               100 * (predicted.steps_per_s / quiet - 1));
    std::fflush(stdout);
  }
  fmt::print("constants of the last prediction: {}\n", constants.dump());
  fs::remove_all(folder);
}
