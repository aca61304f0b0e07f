#include "trireme/plan/speedup.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

constexpr int kMostMeasured = 64;  // that a run takes

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

// The runs with one number of workers.
struct SpeedupRow {
  int workers = 0;
  bool over_processors = false;  // more workers than processors
  bool all_reached = false;      // the target
  double basis_s = kUnknown;     // what speed-up is relative to: median T, or 1 / median R
  double speedup = kUnknown;
  Row figures = {};  // medians of the runs, and the above
};

// `one_s`: the basis of 1 worker, unknown where there are no such runs.
SpeedupRow MakeRow(const SpeedupQuestion& question, const std::vector<const RunFacts*>& runs, double one_s) {
  const auto median = [&](auto figure) {
    std::vector<double> values;
    for (const RunFacts* run : runs) values.push_back(std::invoke(figure, *run));
    return Median(std::move(values));
  };
  const auto per_step = [&](std::uint64_t RunFacts::*count) {
    return median([&](const RunFacts& run) {
      return run.steps > 0 ? static_cast<double>(run.*count) / static_cast<double>(run.steps) : kUnknown;
    });
  };
  const bool target = question.run.stop_at_target, asynchronous = question.run.asynchronous();
  const auto reached =
      std::ranges::count_if(runs, [](auto* run) { return run->time_to_target_s.has_value(); });
  const double target_s = target ? median(TimeToTarget) : kUnknown;
  const double wall_s = median(&RunFacts::wall_s), steps_per_s = median(&RunFacts::steps_per_s);
  SpeedupRow row;
  row.workers = runs.front()->workers;
  row.over_processors = row.workers > question.processors;
  row.all_reached = reached == std::ssize(runs);
  row.basis_s = target ? target_s : asynchronous ? 1 / steps_per_s : wall_s;
  if (std::isfinite(row.basis_s)) row.speedup = row.workers == 1 ? 1 : one_s / row.basis_s;
  row.figures = {
      {"workers", "workers", row.workers, fmt::format("{}{}", row.over_processors ? "*" : "", row.workers)},
      {"runs", target ? "" : "runs", runs.size()},
      {"reached", target ? "reached" : "", target ? reached : 0, fmt::format("{}/{}", reached, runs.size())},
      {"over_processors", "", row.over_processors},
      Decimal("wall_s", target ? "" : "wall s", wall_s, 3),
      Decimal("time_to_target_s", target ? "target s" : "", target_s, 3),
      Decimal("cpu_s", "cpu s", median(&RunFacts::cpu_s), 3),
      Count("steps_per_s", "steps/s", steps_per_s),
      Decimal("speedup", "speed-up", row.speedup, 2),
      Decimal("efficiency", "efficiency", row.speedup / row.workers, 2),
      Decimal("kept", "kept", median(Kept), 2),
      Decimal("idle", "idle %", median(IdleShare), 1, 100),
      Decimal("bytes_per_step", "bytes/step", per_step(&RunFacts::bytes_sent), 1),
      Decimal("messages_per_step", "msgs/step", per_step(&RunFacts::messages_sent), 4),
      Decimal("staleness_mean", "staleness", asynchronous ? median(&RunFacts::staleness_mean) : kUnknown, 2)};
  return row;
}

std::string Describe(const RunConfig& run) {
  return fmt::format("{} on {}, store {}", run.algo, run.env_identity(), run.store);
}

std::string Describe(const Straggler& slow) {
  return fmt::format("worker {} was made {:g} times slower in every run", slow.worker, slow.factor);
}

void AddNotes(const SpeedupQuestion& question, const std::vector<SpeedupRow>& rows, bool interrupted,
              CommandReport& report) {
  const auto note_if = [&](bool so, const std::string& note) {
    if (so) report.notes.push_back(note);
  };
  note_if(std::ranges::any_of(rows, &SpeedupRow::over_processors),
          fmt::format("*  more workers than processors ({})", question.processors));
  note_if(rows.empty(), "nothing was measured");
  note_if(!rows.empty() && rows.front().workers != 1,
          "no speed-up: it is relative to 1 worker, which was not measured");
  note_if(question.straggler.worker >= 0, Describe(question.straggler));
  note_if(question.run.stop_at_target && !std::ranges::all_of(rows, &SpeedupRow::all_reached),
          "runs that did not reach the target count as infinitely long");
  note_if(interrupted, "interrupted: some runs are missing");
}

void AddPlot(const SpeedupQuestion& question, const std::vector<SpeedupRow>& rows, CommandReport& report) {
  const RunConfig& run = question.run;
  report.plot.title = fmt::format("Speed-up of {}", Describe(run));
  if (question.straggler.worker >= 0) report.plot.title += ": " + Describe(question.straggler);
  report.plot.x_label = fmt::format("workers ({} {})", question.processors,
                                    question.processors == 1 ? "processor" : "processors");
  report.plot.y_label = run.stop_at_target
                            ? fmt::format("time to a return of {:g}, times faster", *run.target)
                        : run.asynchronous() ? "steps/s relative to 1 worker"
                                             : "time of 1 worker / time of m workers";
  for (const SpeedupRow& row : rows) {
    const char* const name = row.over_processors ? "measured, more workers than processors" : "measured";
    report.Plot(name, row.workers, row.speedup).markers = true;
  }
  if (!rows.empty()) report.Plot("ideal", 0, 0).faint = true;
  for (const SpeedupRow& row : rows) report.Plot("ideal", row.workers, row.workers);
}

}  // namespace

std::vector<int> DefaultWorkerCounts(int processors, std::optional<int> most) {
  const int last = std::min({2 * processors, kMostMeasured, most.value_or(kMostMeasured)});
  std::vector<int> counts;
  for (int workers = 1; workers <= last; workers *= 2) counts.push_back(workers);
  return counts;
}

CommandReport MakeReport(const SpeedupQuestion& question, const std::vector<RunFacts>& runs,
                         bool interrupted) {
  const RunConfig& run = question.run;
  const Straggler& slow = question.straggler;
  const bool target = run.stop_at_target, slowed = slow.worker >= 0;
  std::map<int, std::vector<const RunFacts*>> by_workers;
  for (const RunFacts& each : runs) by_workers[each.workers].push_back(&each);
  std::vector<SpeedupRow> rows;
  double one_s = kUnknown;
  for (const auto& [workers, group] : by_workers) {
    rows.push_back(MakeRow(question, group, one_s));
    if (workers == 1) one_s = rows.back().basis_s;
  }

  CommandReport report;
  report.heading = fmt::format(
      "{}: {}, {}, {} {}", Describe(run),
      target ? fmt::format("time to a return of {:g}", *run.target)
             : fmt::format("{} steps", FormatCount(static_cast<double>(run.steps))),
      question.repeats == 1 ? "one run each" : fmt::format("medians of {} runs", question.repeats),
      target ? "seeds from" : "seed", run.seed);
  report.facts = {{"env", run.env},
                  {"env_options", run.env_options},
                  {"algo", run.algo},
                  {"store", run.store},
                  {"asynchronous", run.asynchronous()},
                  {"steps", run.steps},
                  {"target", target ? Json(*run.target) : Json()},
                  {"seed", run.seed},
                  {"repeats", question.repeats},
                  {"processors", question.processors},
                  {"straggler", slowed ? Json{{"worker", slow.worker}, {"factor", slow.factor}} : Json()},
                  {"interrupted", interrupted}};
  report.sections = {{"", "rows", {}}, {"", "runs", {}}};
  for (const SpeedupRow& row : rows) report.sections[0].rows.push_back(row.figures);
  for (const RunFacts& each : runs) {
    // Without a target, when a run came past the environment's own is no question of this report.
    report.sections[1].rows.push_back({{"workers", "", each.workers},
                                       {"seed", "", each.seed},
                                       {"steps", "", each.steps},
                                       {"wall_s", "", each.wall_s},
                                       {"cpu_s", "", each.cpu_s},
                                       {"time_to_target_s", "", target ? TimeToTarget(each) : kUnknown}});
  }

  AddNotes(question, rows, interrupted, report);
  AddPlot(question, rows, report);
  return report;
}

}  // namespace trireme
