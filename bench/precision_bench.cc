// One training step (forward, backward, Adam) of dense networks on one core: in bf16 beside fp32, and in bf16 with
// products of 32 bits, as on processors without those of 16. Steps of all three are taken in turns, so that a clock
// that wanders changes their ratios little. Times are processor time, which does not count who else wants the core.
//
//   precision_bench [--json] [--seconds S] [--widths 64,1024] [--batch N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "timing.h"
#include "training_step.h"
#include "trireme/nn/bf16_products.h"

namespace trireme {
namespace {

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Figures {
  double fp32_s, bf16_s, bf16_by_32_s;  // medians
};

Figures Measure(int width, int batch, double budget) {
  const std::vector<TowerSpec> towers = {{.name = "policy",
                                          .inputs = 17,
                                          .hidden = {width, width},
                                          .outputs = 6,
                                          .activation = Activation::kRelu}};
  TrainingStep fp32(towers, batch), bf16(towers, batch, Precision::kBf16);
  OverrideProducts(Products::kFp32);
  TrainingStep bf16_by_32(towers, batch, Precision::kBf16);
  OverrideProducts(Products::kAvx512Bf16);
  TrainingStep* const all[] = {&fp32, &bf16, &bf16_by_32};
  std::vector<double> seconds[3];
  for (TrainingStep* step : all) (*step)();
  const double begun = Now();
  bf16();
  const int steps = std::max(1, static_cast<int>(300e-6 / (Now() - begun)));
  const double end = Now() + budget;
  while (Now() < end || seconds[0].size() < 5) {
    for (int i = 0; i < 3; ++i) {
      const double start = ProcessorSeconds();
      for (int s = 0; s < steps; ++s) (*all[i])();
      seconds[i].push_back((ProcessorSeconds() - start) / steps);
    }
  }
  return {Median(seconds[0]), Median(seconds[1]), Median(seconds[2])};
}

void Run(bool json, double seconds, const std::vector<int>& widths, int batch) {
  const char* const products = NameOf(CurrentProducts());
  if (!json) {
    fmt::print("products: {}; ratios: times as fast as fp32\n{:<14}{:>7}{:>12}{:>12}{:>8}{:>18}{:>8}\n",
               products, "network", "batch", "fp32 us", "bf16 us", "ratio", "by 32 bits us", "ratio");
  }
  for (const int width : widths) {
    const Figures f = Measure(width, batch, seconds);
    if (json) {
      const nlohmann::ordered_json line = {{"bench", "precision"},
                                           {"products", products},
                                           {"width", width},
                                           {"batch", batch},
                                           {"fp32_us", f.fp32_s * 1e6},
                                           {"bf16_us", f.bf16_s * 1e6},
                                           {"bf16_by_32_us", f.bf16_by_32_s * 1e6}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:<14}{:>7}{:>12.1f}{:>12.1f}{:>8.2f}{:>18.1f}{:>8.2f}\n",
                 fmt::format("17-{}-{}-6", width, width), batch, f.fp32_s * 1e6, f.bf16_s * 1e6,
                 f.fp32_s / f.bf16_s, f.bf16_by_32_s * 1e6, f.fp32_s / f.bf16_by_32_s);
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  bool json = false;
  double seconds = 2;
  std::vector<int> widths = {64, 256, 1024, 4096};
  int batch = 256;
  CLI::App app("Training step in bf16 beside fp32");
  app.add_flag("--json", json, "print a JSON line per network");
  app.add_option("--seconds", seconds, "time to spend on each network, at least")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 3600.0));
  app.add_option("--widths", widths, "units of both hidden layers")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--batch", batch, "samples of a step")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  try {
    trireme::Run(json, seconds, widths, batch);
  } catch (const std::exception& error) {
    fmt::print(stderr, "precision_bench: {}\n", error.what());
    return 1;
  }
}
