#include "trireme/train/speedup.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

constexpr int kMostMeasured = 64;  // that a run takes
constexpr std::string_view kTableLine =
    "{:>7} {:>7} {:>10} {:>9} {:>8} {:>8} {:>10} {:>6} {:>6} {:>10} {:>9} {:>9}";

double PerStep(std::uint64_t count, const RunFacts& run) {
  return run.steps > 0 ? static_cast<double>(count) / static_cast<double>(run.steps) : SpeedupRow::kUnknown;
}

double Kept(const RunFacts& run) {
  double rates = 0, own_rates = 0;
  for (const WorkerFacts& worker : run.per_worker) {
    if (worker.busy_s <= 0) continue;
    rates += static_cast<double>(worker.steps) / (worker.busy_s + worker.idle_s);
    own_rates += static_cast<double>(worker.steps) / worker.busy_s;
  }
  return own_rates > 0 ? rates / own_rates : SpeedupRow::kUnknown;
}

double IdleShare(const RunFacts& run) {
  double idle_s = 0, all_s = 0;
  for (const WorkerFacts& worker : run.per_worker) {
    idle_s += worker.idle_s;
    all_s += worker.idle_s + worker.busy_s;
  }
  return all_s > 0 ? idle_s / all_s : SpeedupRow::kUnknown;
}

double TimeToTarget(const RunFacts& run) {
  return run.time_to_target_s.value_or(std::numeric_limits<double>::infinity());
}

SpeedupRow Summarise(const SpeedupQuestion& question, const std::vector<const RunFacts*>& runs) {
  const auto median = [&](auto figure) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const RunFacts* run : runs) values.push_back(figure(*run));
    return Median(std::move(values));
  };
  SpeedupRow row;
  row.workers = runs.front()->workers;
  row.runs = static_cast<int>(runs.size());
  row.over_processors = row.workers > question.processors;
  row.wall_s = median([](const RunFacts& run) { return run.wall_s; });
  row.cpu_s = median([](const RunFacts& run) { return run.cpu_s; });
  row.steps_per_s = median([](const RunFacts& run) { return run.steps_per_s; });
  row.kept = median(Kept);
  row.idle = median(IdleShare);
  row.bytes_per_step = median([](const RunFacts& run) { return PerStep(run.bytes_sent, run); });
  row.messages_per_step = median([](const RunFacts& run) { return PerStep(run.messages_sent, run); });
  if (question.asynchronous) {
    row.staleness_mean = median([](const RunFacts& run) { return run.staleness_mean; });
  }
  if (question.target) {
    row.time_to_target_s = median(TimeToTarget);
    row.reached = static_cast<int>(
        std::ranges::count_if(runs, [](const RunFacts* run) { return run->time_to_target_s.has_value(); }));
  }
  return row;
}

double Speedup(const SpeedupQuestion& question, const SpeedupRow& one, const SpeedupRow& many) {
  if (question.target) {
    const bool known = std::isfinite(one.time_to_target_s) && std::isfinite(many.time_to_target_s);
    return known && many.time_to_target_s > 0 ? one.time_to_target_s / many.time_to_target_s
                                              : SpeedupRow::kUnknown;
  }
  if (question.asynchronous) {
    return one.steps_per_s > 0 ? many.steps_per_s / one.steps_per_s : SpeedupRow::kUnknown;
  }
  return many.wall_s > 0 ? one.wall_s / many.wall_s : SpeedupRow::kUnknown;
}

std::string Cell(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "-";
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

// NaN and infinity have no place in JSON.
nlohmann::ordered_json Number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json JsonOf(const SpeedupRow& row) {
  return {{"workers", row.workers},
          {"runs", row.runs},
          {"reached", row.reached},
          {"over_processors", row.over_processors},
          {"wall_s", Number(row.wall_s)},
          {"time_to_target_s", Number(row.time_to_target_s)},
          {"cpu_s", Number(row.cpu_s)},
          {"steps_per_s", Number(row.steps_per_s)},
          {"speedup", Number(row.speedup)},
          {"efficiency", Number(row.efficiency)},
          {"kept", Number(row.kept)},
          {"idle", Number(row.idle)},
          {"bytes_per_step", Number(row.bytes_per_step)},
          {"messages_per_step", Number(row.messages_per_step)},
          {"staleness_mean", Number(row.staleness_mean)}};
}

// Without a target, when a run came past the environment's own is no question of this report.
nlohmann::ordered_json JsonOf(const RunFacts& run, bool target) {
  return {{"workers", run.workers},
          {"seed", run.seed},
          {"steps", run.steps},
          {"wall_s", Number(run.wall_s)},
          {"cpu_s", Number(run.cpu_s)},
          {"time_to_target_s", Number(target ? TimeToTarget(run) : SpeedupRow::kUnknown)}};
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
  const bool all_reached =
      std::ranges::all_of(rows, [](const SpeedupRow& row) { return row.reached == row.runs; });
  if (question.target && !all_reached) {
    add("runs that did not reach the target count as infinitely long");
  }
  if (report.interrupted) add("interrupted: some runs are missing");
  return notes;
}

}  // namespace

std::vector<int> DefaultWorkerCounts(int processors, std::optional<int> shards) {
  const int most = std::min({2 * processors, shards.value_or(kMostMeasured), kMostMeasured});
  std::vector<int> counts;
  for (int workers = 1; workers <= most; workers *= 2) counts.push_back(workers);
  return counts;
}

double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return SpeedupRow::kUnknown;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

SpeedupReport MakeSpeedupReport(const SpeedupQuestion& question, std::vector<RunFacts> runs,
                                bool interrupted) {
  SpeedupReport report{.question = question, .runs = std::move(runs), .rows = {}, .interrupted = interrupted};
  std::map<int, std::vector<const RunFacts*>> by_workers;
  for (const RunFacts& run : report.runs) by_workers[run.workers].push_back(&run);
  for (const auto& [workers, group] : by_workers) report.rows.push_back(Summarise(question, group));
  if (report.rows.empty() || report.rows.front().workers != 1) return report;
  for (SpeedupRow& row : report.rows) {
    row.speedup = Speedup(question, report.rows.front(), row);
    row.efficiency = row.speedup / row.workers;
  }
  return report;
}

std::string SpeedupTable(const SpeedupReport& report) {
  const bool target = report.question.target.has_value();
  std::string table = Heading(report.question);
  const auto add = [&](const auto&... cells) {
    table += fmt::format(kTableLine, cells...);
    table += '\n';
  };
  add("workers", target ? "reached" : "runs", target ? "target s" : "wall s", "cpu s", "steps/s", "speed-up",
      "efficiency", "kept", "idle %", "bytes/step", "msgs/step", "staleness");
  for (const SpeedupRow& row : report.rows) {
    add(fmt::format("{}{}", row.over_processors ? "*" : "", row.workers),
        target ? fmt::format("{}/{}", row.reached, row.runs) : fmt::format("{}", row.runs),
        Cell(target ? row.time_to_target_s : row.wall_s, 3), Cell(row.cpu_s, 3), FormatCount(row.steps_per_s),
        Cell(row.speedup, 2), Cell(row.efficiency, 2), Cell(row.kept, 2), Cell(100 * row.idle, 1),
        Cell(row.bytes_per_step, 1), Cell(row.messages_per_step, 4), Cell(row.staleness_mean, 2));
  }
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
  nlohmann::ordered_json json = {{"env", question.env},
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
                                 {"rows", nlohmann::ordered_json::array()},
                                 {"runs", nlohmann::ordered_json::array()}};
  if (question.target) json["target"] = *question.target;
  if (question.straggler.worker >= 0) {
    json["straggler"] = {{"worker", question.straggler.worker}, {"factor", question.straggler.factor}};
  }
  for (const SpeedupRow& row : report.rows) json["rows"].push_back(JsonOf(row));
  for (const RunFacts& run : report.runs) json["runs"].push_back(JsonOf(run, question.target.has_value()));
  return json.dump();
}

}  // namespace trireme
