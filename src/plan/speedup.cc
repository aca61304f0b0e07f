#include "trireme/plan/speedup.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

constexpr int kMostMeasured = 64;  // that a run takes

double PerStep(std::uint64_t count, const RunFacts& run) {
  return run.steps > 0 ? static_cast<double>(count) / static_cast<double>(run.steps) : kUnknown;
}

double Kept(const RunFacts& run) {
  double rates = 0, own_rates = 0;
  for (const WorkerFacts& worker : run.per_worker) {
    if (worker.busy_s <= 0) continue;
    rates += static_cast<double>(worker.steps) / (worker.busy_s + worker.idle_s);
    own_rates += static_cast<double>(worker.steps) / worker.busy_s;
  }
  return own_rates > 0 ? rates / own_rates : kUnknown;
}

double IdleShare(const RunFacts& run) {
  double idle_s = 0, all_s = 0;
  for (const WorkerFacts& worker : run.per_worker) {
    idle_s += worker.idle_s;
    all_s += worker.idle_s + worker.busy_s;
  }
  return all_s > 0 ? idle_s / all_s : kUnknown;
}

double TimeToTarget(const RunFacts& run) {
  return run.time_to_target_s.value_or(std::numeric_limits<double>::infinity());
}

using Runs = std::vector<const RunFacts*>;

double MedianOf(const Runs& runs, double (*figure)(const RunFacts&)) {
  std::vector<double> values;
  for (const RunFacts* run : runs) values.push_back(figure(*run));
  return Median(std::move(values));
}

// `one`: the row of 1 worker; null where this is it.
SpeedupRow MakeRow(const SpeedupQuestion& question, const Runs& runs, const SpeedupRow* one) {
  const bool target = question.target.has_value();
  const auto reached =
      std::ranges::count_if(runs, [](const RunFacts* run) { return run->time_to_target_s.has_value(); });
  const double target_s = target ? MedianOf(runs, TimeToTarget) : kUnknown;
  const double wall_s = MedianOf(runs, [](const RunFacts& run) { return run.wall_s; });
  const double steps_per_s = MedianOf(runs, [](const RunFacts& run) { return run.steps_per_s; });
  SpeedupRow row;
  row.workers = runs.front()->workers;
  row.over_processors = row.workers > question.processors;
  row.all_reached = reached == std::ssize(runs);
  row.basis_s = target ? target_s : question.asynchronous ? 1 / steps_per_s : wall_s;
  const double speedup = (one != nullptr ? one->basis_s : row.basis_s) / row.basis_s;
  if ((one != nullptr || row.workers == 1) && std::isfinite(row.basis_s)) row.speedup = speedup;

  const auto add = [&](const char* key, const char* heading, std::size_t width, double value, int decimals,
                       double scale = 1) {
    row.figures.push_back({key, heading, width, Number(value), Cell(scale * value, decimals)});
  };
  const auto median = [&](const char* key, const char* heading, std::size_t width, int decimals,
                          double (*figure)(const RunFacts&), double scale = 1) {
    add(key, heading, width, MedianOf(runs, figure), decimals, scale);
  };
  row.figures = {{"workers", "workers", 7, row.workers,
                  fmt::format("{}{}", row.over_processors ? "*" : "", row.workers)},
                 {"runs", target ? "" : "runs", 7, runs.size(), fmt::format("{}", runs.size())},
                 {"reached", target ? "reached" : "", 7, target ? reached : 0,
                  fmt::format("{}/{}", reached, runs.size())},
                 {"over_processors", "", 0, row.over_processors}};
  add("wall_s", target ? "" : "wall s", 10, wall_s, 3);
  add("time_to_target_s", target ? "target s" : "", 10, target_s, 3);
  median("cpu_s", "cpu s", 9, 3, [](const RunFacts& run) { return run.cpu_s; });
  row.figures.push_back({"steps_per_s", "steps/s", 8, Number(steps_per_s), FormatCount(steps_per_s)});
  add("speedup", "speed-up", 8, row.speedup, 2);
  add("efficiency", "efficiency", 10, row.speedup / row.workers, 2);
  median("kept", "kept", 6, 2, Kept);
  median("idle", "idle %", 6, 1, IdleShare, 100);
  median("bytes_per_step", "bytes/step", 10, 1,
         [](const RunFacts& run) { return PerStep(run.bytes_sent, run); });
  median("messages_per_step", "msgs/step", 9, 4,
         [](const RunFacts& run) { return PerStep(run.messages_sent, run); });
  const double staleness = MedianOf(runs, [](const RunFacts& run) { return run.staleness_mean; });
  add("staleness_mean", "staleness", 9, question.asynchronous ? staleness : kUnknown, 2);
  return row;
}

std::string Describe(const SpeedupQuestion& question) {
  return fmt::format("{} on {}, store {}", question.algo, question.env, question.store);
}

std::string Heading(const SpeedupQuestion& question) {
  const std::string figures =
      question.repeats == 1 ? "one run each" : fmt::format("medians of {} runs", question.repeats);
  if (question.target) {
    return fmt::format("{}: time to a return of {:g}, {}, seeds from {}\n", Describe(question),
                       *question.target, figures, question.seed);
  }
  return fmt::format("{}: {} steps, {}, seed {}\n", Describe(question),
                     FormatCount(static_cast<double>(question.steps)), figures, question.seed);
}

// Without a target, when a run came past the environment's own is no question of this report.
Json JsonOf(const RunFacts& run, bool target) {
  return {{"workers", run.workers},     {"seed", run.seed},
          {"steps", run.steps},         {"wall_s", Number(run.wall_s)},
          {"cpu_s", Number(run.cpu_s)}, {"time_to_target_s", Number(target ? TimeToTarget(run) : kUnknown)}};
}

std::string Notes(const SpeedupReport& report) {
  const SpeedupQuestion& question = report.question;
  const std::vector<SpeedupRow>& rows = report.rows;
  std::string notes;
  const auto add = [&](const std::string& line) { notes += line + "\n"; };
  if (std::ranges::any_of(rows, &SpeedupRow::over_processors)) {
    add(fmt::format("*  more workers than processors ({})", question.processors));
  }
  if (rows.empty()) {
    add("nothing was measured");
  } else if (rows.front().workers != 1) {
    add("no speed-up: it is relative to 1 worker, which was not measured");
  }
  if (question.straggler.worker >= 0) {
    add(fmt::format("worker {} was made {:g} times slower in every run", question.straggler.worker,
                    question.straggler.factor));
  }
  if (question.target && !std::ranges::all_of(rows, &SpeedupRow::all_reached)) {
    add("runs that did not reach the target count as infinitely long");
  }
  if (report.interrupted) add("interrupted: some runs are missing");
  return notes;
}

}  // namespace

std::vector<int> DefaultWorkerCounts(int processors, std::optional<int> limit) {
  const int most = std::min({2 * processors, limit.value_or(kMostMeasured), kMostMeasured});
  std::vector<int> counts;
  for (int workers = 1; workers <= most; workers *= 2) counts.push_back(workers);
  return counts;
}

SpeedupReport MakeSpeedupReport(const SpeedupQuestion& question, std::vector<RunFacts> runs,
                                bool interrupted) {
  SpeedupReport report{.question = question, .runs = std::move(runs), .rows = {}, .interrupted = interrupted};
  std::map<int, std::vector<const RunFacts*>> by_workers;
  for (const RunFacts& run : report.runs) by_workers[run.workers].push_back(&run);
  report.rows.reserve(by_workers.size());
  for (const auto& [workers, group] : by_workers) {
    const bool known = !report.rows.empty() && report.rows.front().workers == 1;
    report.rows.push_back(MakeRow(question, group, known ? &report.rows.front() : nullptr));
  }
  return report;
}

std::string SpeedupTable(const SpeedupReport& report) {
  const RunFacts none;
  std::string table =
      Heading(report.question) + HeadingLine(MakeRow(report.question, {&none}, nullptr).figures);
  for (const SpeedupRow& row : report.rows) table += TableLine(row.figures);
  return table + Notes(report);
}

LinePlot SpeedupPlot(const SpeedupReport& report) {
  const SpeedupQuestion& question = report.question;
  PlotSeries measured{.name = "measured", .x = {}, .y = {}};
  PlotSeries over{.name = "measured, more workers than processors", .x = {}, .y = {}};
  PlotSeries ideal{.name = "ideal", .x = {}, .y = {}};
  measured.markers = over.markers = ideal.faint = true;
  if (!report.rows.empty()) ideal.x = ideal.y = {0};
  for (const SpeedupRow& row : report.rows) {
    PlotSeries& series = row.over_processors ? over : measured;
    series.x.push_back(row.workers);
    series.y.push_back(row.speedup);
    ideal.x.push_back(row.workers);
    ideal.y.push_back(row.workers);
  }
  LinePlot plot;
  plot.title = fmt::format("Speed-up of {}", Describe(question));
  if (question.straggler.worker >= 0) {
    plot.title +=
        fmt::format(", worker {} {:g} times slower", question.straggler.worker, question.straggler.factor);
  }
  plot.x_label = fmt::format("workers ({} {})", question.processors,
                             question.processors == 1 ? "processor" : "processors");
  plot.y_label = question.target ? fmt::format("time to a return of {:g}, times faster", *question.target)
                 : question.asynchronous ? "steps/s relative to 1 worker"
                                         : "time of 1 worker / time of m workers";
  plot.series.push_back(std::move(measured));
  if (!over.x.empty()) plot.series.push_back(std::move(over));
  plot.series.push_back(std::move(ideal));
  return plot;
}

std::string SpeedupJson(const SpeedupReport& report) {
  const SpeedupQuestion& question = report.question;
  Json json = {{"env", question.env},
               {"algo", question.algo},
               {"store", question.store},
               {"asynchronous", question.asynchronous},
               {"steps", question.steps},
               {"target", nullptr},
               {"seed", question.seed},
               {"repeats", question.repeats},
               {"processors", question.processors},
               {"straggler", nullptr},
               {"interrupted", report.interrupted},
               {"rows", Json::array()},
               {"runs", Json::array()}};
  if (question.target) json["target"] = *question.target;
  if (question.straggler.worker >= 0) {
    json["straggler"] = {{"worker", question.straggler.worker}, {"factor", question.straggler.factor}};
  }
  for (const SpeedupRow& row : report.rows) json["rows"].push_back(JsonOf(row.figures));
  for (const RunFacts& run : report.runs) json["runs"].push_back(JsonOf(run, question.target.has_value()));
  return json.dump();
}

}  // namespace trireme
