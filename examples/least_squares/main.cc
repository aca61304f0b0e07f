// Runs every kind of descent on one problem and prints what they found, what they cost and what travelled.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "least_squares/least_squares.h"
#include "least_squares/map_reduce.h"
#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/metrics/plot.h"

namespace trireme {
namespace {

constexpr double kNoise = 0.1;
constexpr std::int64_t kMostNumbers = 20'000'000;  // 160 MB of samples

struct Settings {
  std::int64_t samples = 20'000, dimensions = 20;
  int workers = kBlocks, rounds = 100;
  double rate = 0.5;
  std::uint64_t seed = 1;

  void Fields(ConfigFields& field) {
    field("samples", samples, "how many samples", Between(1, 1'000'000));
    field("dimensions", dimensions, "numbers in w", Between(1, 10'000));
    field("workers", workers, "the most workers: 1, 2, 4 or 8; smaller numbers are run as well",
          Between(1, kBlocks));
    field("rounds", rounds, "steps of descent", Between(1, 1'000'000));
    field("rate", rate, "step size", Between(1e-9, 1e9));
    field("seed", seed, "of the samples");
  }
  void Validate() const {
    if (!std::has_single_bit(static_cast<unsigned>(workers)))
      Fail("--workers {}: expected 1, 2, 4 or 8, so that {} blocks can be dealt out evenly", workers,
           kBlocks);
    if (samples * dimensions > kMostNumbers)
      Fail("--samples {} with --dimensions {} is too large: their product may be {} at most", samples,
           dimensions, kMostNumbers);
  }
};

class Lesson {
 public:
  explicit Lesson(const Settings& settings)
      : settings_(settings),
        descent_({.rounds = settings.rounds, .rate = settings.rate}),
        problem_(MakeLeastSquares(settings.samples, settings.dimensions, kNoise, settings.seed)),
        serial_(SerialDescent(problem_, descent_)) {
    for (int workers = 1; workers <= settings.workers; workers *= 2) workers_.push_back(workers);
    const double start = Loss(problem_, std::vector<double>(problem_.dimensions, 0.0));
    if (!(Loss(problem_, serial_.w) < start))
      Fail("--rate {}: the descent diverges; choose a lower rate", settings.rate);
  }

  void PrintDescents() {
    fmt::print("{} samples, {} dimensions, {} rounds, rate {}, seed {}\n\n", settings_.samples,
               settings_.dimensions, settings_.rounds, settings_.rate, settings_.seed);
    fmt::print("{:<13}{:>8}{:>9}{:>9}{:>12}{:>14}{:>11}{:>14}\n", "", "workers", "wall s", "cpu s", "loss",
               "|w - truth|", "within 0.2", "serial's bits");
    PrintDescent("serial", 1, serial_);
    fmt::print("\n");
    for (const int workers : workers_) {
      synchronous_.push_back(SynchronousDescent(problem_, descent_, workers));
      PrintDescent("synchronous", workers, synchronous_.back());
    }
    for (const int workers : workers_) {
      asynchronous_.push_back(AsynchronousDescent(problem_, descent_, workers));
      PrintDescent("asynchronous", workers, asynchronous_.back());
    }
  }

  void PrintStaleness() const {
    fmt::print("\nasynchronous {:>8}{:>9}{:>17}{:>17}\n", "workers", "pushes", "staleness: mean", "most");
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const Descent& descent = asynchronous_[i];
      fmt::print("{:>21}{:>9}{:>17.2f}{:>17}\n", workers_[i], descent.pushes, descent.staleness.mean(),
                 descent.staleness.most);
    }
  }

  // One round of the naive descent is enough: all rounds send the same.
  void PrintTraffic() const {
    fmt::print("\nper round    {:>8}{:>10}{:>17}{:>14}{:>14}{:>10}\n", "workers", "messages",
               "broadcast bytes", "reduce bytes", "formula", "wall ms");
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const std::uint64_t m = workers_[i];
      PrintTraffic("local reduce", workers_[i], synchronous_[i], settings_.rounds,
                   (m - 1) * problem_.dimensions);
      PrintTraffic("one by one", workers_[i],
                   NaiveDescent(problem_, {.rounds = 1, .rate = settings_.rate}, workers_[i]), 1,
                   (problem_.samples + m - 1) / m * (m - 1) * problem_.dimensions);
    }
    fmt::print(
        "formula: 8 bytes times (m - 1) d, or ceil(n / m) (m - 1) d one by one; broadcast (m - 1) d\n");
  }

  void PrintIdleTime() const {
    fmt::print("\nidle s, by worker of the synchronous descent\n");
    for (const Descent& descent : synchronous_) {
      fmt::print("{:>21}", descent.traffic.size());
      for (const Traffic& traffic : descent.traffic) fmt::print("{:>9.3f}", traffic.idle_s);
      fmt::print("\n");
    }
  }

  // Runs the descents again, this time looking at the loss as they go.
  std::string Picture() const {
    LinePlot plot{.title = "Least squares: the same problem, three descents",
                  .x_label = "rounds",
                  .y_label = "log10 of the loss",
                  .series = {},
                  .target = {}};
    const auto add = [&](const std::string& name, auto&& descend) {
      PlotSeries series{.name = name, .x = {}, .y = {}};
      DescentSettings settings = descent_;
      settings.observe = [&](int rounds, std::span<const double> w) {
        series.x.push_back(rounds);
        series.y.push_back(std::log10(Loss(problem_, w)));
      };
      settings.observe(0, std::vector<double>(problem_.dimensions, 0.0));
      descend(settings);
      plot.series.push_back(std::move(series));
    };
    const int workers = settings_.workers;
    add("serial", [&](const DescentSettings& settings) { SerialDescent(problem_, settings); });
    plot.series.back().markers = true;  // to be seen under the synchronous line, which is the same
    add(fmt::format("synchronous, {} workers", workers),
        [&](const DescentSettings& settings) { SynchronousDescent(problem_, settings, workers); });
    add(fmt::format("asynchronous, {} workers", workers),
        [&](const DescentSettings& settings) { AsynchronousDescent(problem_, settings, workers); });
    return plot.ToSvg();
  }

 private:
  void PrintDescent(const char* name, int workers, const Descent& descent) const {
    double squares = 0;
    for (std::size_t i = 0; i < descent.w.size(); ++i)
      squares += (descent.w[i] - problem_.truth[i]) * (descent.w[i] - problem_.truth[i]);
    const Fit fit = Assess(problem_, descent.w, 2 * kNoise, workers);
    const bool same = std::memcmp(descent.w.data(), serial_.w.data(), serial_.w.size() * sizeof(double)) == 0;
    fmt::print("{:<13}{:>8}{:>9.3f}{:>9.3f}{:>12.4e}{:>14.4e}{:>10.1f}%{:>14}\n", name, workers,
               descent.wall_s, descent.cpu_s, fit.loss, std::sqrt(squares),
               100.0 * static_cast<double>(fit.close) / static_cast<double>(problem_.samples),
               same ? "yes" : "no");
  }

  // What the root sends is the broadcast, what the others send the reduction.
  static void PrintTraffic(const char* name, int workers, const Descent& descent, int rounds,
                           std::uint64_t formula) {
    Traffic sent;
    for (const Traffic& traffic : descent.traffic) sent += traffic;
    const std::uint64_t broadcast = descent.traffic[kRoot].bytes;
    const std::uint64_t per = static_cast<std::uint64_t>(rounds);
    fmt::print("{:<13}{:>8}{:>10}{:>17}{:>14}{:>14}{:>10.2f}\n", name, workers, sent.messages / per,
               broadcast / per, (sent.bytes - broadcast) / per, formula * sizeof(double),
               1e3 * descent.wall_s / rounds);
  }

  Settings settings_;
  DescentSettings descent_;
  LeastSquares problem_;
  Descent serial_;
  std::vector<int> workers_;
  std::vector<Descent> synchronous_, asynchronous_;  // by index into workers_
};

int Run(int argc, char** argv) {
  CLI::App app("Least squares by parallel gradient descent; docs/least-squares.md explains it.",
               "least_squares");
  Settings settings;
  ConfigFields fields;
  fields.Add(settings);
  std::vector<std::optional<std::string>> given(fields.fields().size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const ConfigFields::Field& field = fields.fields()[i];
    app.add_option("--" + field.name, given[i], fmt::format("{} ({})", field.doc, field.default_text));
  }
  std::string picture;
  app.add_option("--picture", picture, "write the loss over rounds to this SVG file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    Fail("{}. See least_squares --help.", error.what());
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string& name = fields.fields()[i].name;
    if (given[i]) fields.Set(name, *given[i], fmt::format("--{}", name));
  }
  settings.Validate();

  Lesson lesson(settings);
  lesson.PrintDescents();
  lesson.PrintStaleness();
  lesson.PrintTraffic();
  lesson.PrintIdleTime();
  if (!picture.empty()) WriteFileAtomically(picture, lesson.Picture());
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::OpenStandardDescriptors();
  try {
    const int code = trireme::Run(argc, argv);
    if (std::fflush(stdout) != 0) trireme::Fail("cannot write the output: {}", std::strerror(errno));
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "least_squares: %s\n", error.what());
  }
  return 2;
}
