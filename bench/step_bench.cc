// One training step (forward, backward, Adam) on one core as a share of the core's multiply-add peak, which
// is measured around every burst of steps.
//
//   step_bench [--json] [--seconds S] [path of torch_step]
//
// With torch_step (bench/peers) it shows libtorch's figure for the same step beside ours. FLOPs count what
// cannot be avoided: per weight and sample 2 forward and 4 backward, 2 in the first layer, whose input needs
// no gradient. Zeroing the gradient and preparing the weights for the backward pass belong to the step.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "timing.h"
#include "training_step.h"
#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct Case {
  std::string network;  // as torch_step calls it
  std::vector<TowerSpec> towers;
  int batch;
  double bar;  // share of the peak to reach; 0 for none
};

std::vector<Case> AllCases() {
  const std::vector<TowerSpec> small = {
      {.name = "policy", .inputs = 4, .hidden = {64, 64}, .outputs = 2, .activation = Activation::kTanh},
      {.name = "value", .inputs = 4, .hidden = {64, 64}, .outputs = 1, .activation = Activation::kTanh}};
  const std::vector<TowerSpec> large = {
      {.name = "policy", .inputs = 17, .hidden = {256, 256}, .outputs = 6, .activation = Activation::kRelu}};
  std::vector<Case> cases;
  for (const int batch : {64, 256, 1024, 4096}) {
    cases.push_back({"4-64-64-{2,1} tanh", small, batch, batch < 256 ? 0.50 : 0.65});
  }
  for (const int batch : {64, 256, 1024}) {
    cases.push_back({"17-256-256-6 relu", large, batch, batch == 256 ? 0.82 : 0.0});
  }
  return cases;
}

double FlopsPerSample(const std::vector<TowerSpec>& towers) {
  double flops = 0;
  for (const TowerSpec& tower : towers) {
    int inputs = tower.inputs;
    double factor = 4;
    for (const int outputs : tower.hidden) {
      flops += factor * inputs * outputs;
      inputs = outputs;
      factor = 6;
    }
    flops += factor * inputs * tower.outputs;
  }
  return flops;
}

struct Figures {
  double seconds, gflops, peak, share;  // medians over the bursts
};

Figures Measure(const Case& c, double budget) {
  TrainingStep step(c.towers, c.batch);
  const double flops = FlopsPerSample(c.towers) * c.batch;
  for (int i = 0; i < 10; ++i) step();
  double start = Now();
  step();
  // Long enough for the clock, short enough for the peak before and after to be that of the burst.
  const int steps = std::max(1, static_cast<int>(300e-6 / (Now() - start)));
  std::vector<double> seconds, peaks, shares;
  const double end = Now() + budget;
  double before = FmaPeak();
  while (Now() < end || seconds.size() < 21) {
    start = Now();
    for (int i = 0; i < steps; ++i) step();
    seconds.push_back((Now() - start) / steps);
    const double after = FmaPeak();
    peaks.push_back((before + after) / 2);
    shares.push_back(flops * 1e-9 / seconds.back() / peaks.back());
    before = after;
  }
  const double median = Median(seconds);
  return {median, flops * 1e-9 / median, Median(peaks), Median(shares)};
}

struct Peer {
  double microseconds = 0, gflops = 0;
};
using PeerFigures = std::map<std::pair<std::string, int>, Peer>;  // by network and batch

PeerFigures RunTorch(const std::string& program, double seconds) {
  if (program.empty()) return {};
  if (program.find('\'') != std::string::npos) Fail("{}: a quote in the path is not supported", program);
  FILE* pipe = popen(fmt::format("'{}' {}", program, seconds).c_str(), "r");
  if (pipe == nullptr) Fail("{}: cannot be started", program);
  std::string text;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  if (pclose(pipe) != 0) Fail("{}: failed", program);
  PeerFigures figures;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const auto line = nlohmann::json::parse(text.substr(at, end - at), nullptr, false);
    if (line.is_discarded()) Fail("{}: printed a line that is not JSON", program);
    figures[{line.at("network"), line.at("batch")}] = {line.at("us"), line.at("gflops")};
    at = end + 1;
  }
  return figures;
}

void PrintJson(const Case& c, const Figures& f, const Peer* torch) {
  nlohmann::ordered_json line = {
      {"bench", "step"},       {"isa", IsaName(CurrentIsa())}, {"network", c.network},  {"batch", c.batch},
      {"us", f.seconds * 1e6}, {"gflops", f.gflops},           {"peak_gflops", f.peak}, {"share", f.share}};
  if (c.bar > 0) {
    line["bar"] = c.bar;
    line["ok"] = f.share >= c.bar;
  }
  if (torch != nullptr) {
    line["torch_us"] = torch->microseconds;
    line["torch_gflops"] = torch->gflops;
  }
  fmt::print("{}\n", line.dump());
}

void PrintRow(const Case& c, const Figures& f, const Peer* torch) {
  fmt::print("{:<20}{:>6}{:>11.1f}{:>10.1f}{:>8.1f}{:>8.1f}", c.network, c.batch, f.seconds * 1e6, f.gflops,
             f.peak, f.share * 100);
  if (c.bar > 0) {
    fmt::print("{:>7.0f}  {:<5}", c.bar * 100, f.share >= c.bar ? "ok" : "short");
  } else {
    fmt::print("{:>7}  {:<5}", "-", "");
  }
  if (torch != nullptr) {
    fmt::print("{:>11.1f}{:>9.1f}{:>8.1f}{:>7.1f}x", torch->microseconds, torch->gflops,
               torch->gflops / f.peak * 100, torch->microseconds / (f.seconds * 1e6));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void Run(bool json, double seconds, const std::string& torch_step) {
  if (!(seconds > 0 && seconds <= 3600)) Fail("--seconds must be above 0 and at most 3600");
  const PeerFigures torch = RunTorch(torch_step, seconds);
  if (!json) {
    fmt::print(
        "one training step, one core, {}; bar and %: share of the multiply-add peak\n{:<20}{:>6}{:>11}{:>10}"
        "{:>8}{:>8}{:>7}  {:<5}",
        IsaName(CurrentIsa()), "network", "batch", "us", "GFLOP/s", "peak", "%", "bar", "");
    if (!torch.empty()) fmt::print("{:>11}{:>9}{:>8}{:>8}", "torch us", "GFLOP/s", "%", "ratio");
    fmt::print("\n");
  }
  for (const Case& c : AllCases()) {
    const auto found = torch.find({c.network, c.batch});
    const Peer* peer = found == torch.end() ? nullptr : &found->second;
    (json ? PrintJson : PrintRow)(c, Measure(c, seconds), peer);
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  bool json = false;
  double seconds = 0.5;
  std::string torch_step;
  CLI::App app("Training step as a share of the core's multiply-add peak");
  app.add_flag("--json", json, "print a JSON line per figure");
  app.add_option("--seconds", seconds, "time to spend on each figure")->capture_default_str();
  app.add_option("torch_step", torch_step, "libtorch's side of the benchmark, to be run beside ours");
  CLI11_PARSE(app, argc, argv);
  try {
    trireme::Run(json, seconds, torch_step);
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_bench: {}\n", error.what());
    return 1;
  }
}
