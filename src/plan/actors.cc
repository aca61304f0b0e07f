#include "trireme/plan/actors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/experience/actor_desk.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

Row FiguresOf(const ActorConstants& c, const ActorForecast& row) {
  return {{"actors", "actors", row.actors},
          {"hosts", "hosts", row.hosts},
          Count("sum_steps_per_s", "sum of alone", row.sum_steps_per_s),
          Count("steps_per_s", "steps/s", row.steps_per_s),
          Decimal("of_sum", "of the sum %", row.steps_per_s / row.sum_steps_per_s, 1, 100),
          Decimal("learner_busy", "learner busy %", row.steps_per_s / c.learner_steps_per_s, 1, 100),
          Decimal("link_busy", "link busy %", row.link_busy, 1, 100),
          {"limit", "limit", row.limit}};
}

}  // namespace

std::vector<Row> ActorConstants::Rows() const {
  std::vector<Row> rows;
  const auto add = [&](Figure value, const char* meaning) {
    std::string origin = "measured";
    for (const auto& [prefix, from] : origins) {
      if (value.key.starts_with(prefix)) origin = from;
    }
    const std::string name = value.key;
    value.key = "value";
    value.heading = "value";
    rows.push_back(
        {{"", "constant", name}, std::move(value), {"origin", "origin", origin}, {"", "meaning", meaning}});
  };
  add(Count("actor_steps_per_s", "", actor_steps_per_s), "one actor, whose learner takes everything");
  add(Decimal("actor_processors", "", actor_processors, 3), "processors that it keeps busy");
  add(Count("learner_steps_per_s", "", learner_steps_per_s),
      "the learner, where experience is always waiting");
  add(Count("trajectory_steps", "", trajectory_steps), "environment steps of a trajectory");
  add(Count("trajectory_bytes", "", trajectory_bytes), "of a trajectory, as it is sent");
  add(Count("policy_bytes", "", policy_bytes), "of the parameters that actors are given");
  add(Count("trajectories_per_update", "", trajectories_per_update), "after so many there is another policy");
  add(Duration("network_latency_s", "", network.latency_s), "a message between hosts, however short");
  add(Count("network_bytes_per_s", "", network.bytes_per_s), "the learner's link, in each direction");
  return rows;
}

ActorForecast PredictActors(const ActorConstants& c, const ActorQuestion& question, int actors) {
  ActorForecast row{.actors = actors};
  const int wanted = question.hosts > 0 ? question.hosts : (actors + question.cores - 1) / question.cores;
  row.hosts = std::min(actors, wanted);
  // No actor is sent the same policy twice.
  const double policies = std::min(1.0, actors / c.trajectories_per_update);  // for each trajectory
  const double back_bytes = policies * c.policy_bytes;
  const double trip_s = c.network.Seconds(c.trajectory_bytes) + c.network.Seconds(back_bytes);
  const double collected = actors * c.actor_steps_per_s;
  const double answered = actors * kWindow * c.trajectory_steps / trip_s;
  row.sum_steps_per_s = std::min(collected, answered);
  // The fullest host is no faster than its processors; those of others are as fast as they can be.
  const int full = actors % row.hosts, each = actors / row.hosts;
  const auto of_host = [&](int there) {
    const double busy = there * c.actor_processors;
    return there * c.actor_steps_per_s * (busy > question.cores ? question.cores / busy : 1);
  };
  const double computed = full * of_host(each + 1) + (row.hosts - full) * of_host(each);
  const double carried = c.trajectory_steps / c.network.Transfer(std::max(c.trajectory_bytes, back_bytes));
  row.steps_per_s = collected;
  row.limit = "actors";
  for (const auto& [steps_per_s, limit] : {std::pair(computed, "processors"),
                                           {answered, "latency"},
                                           {carried, "network"},
                                           {c.learner_steps_per_s, "learner"}}) {
    if (steps_per_s >= row.steps_per_s * (1 - 1e-9)) continue;
    row.steps_per_s = steps_per_s;
    row.limit = limit;
  }
  row.link_busy = row.steps_per_s / carried;
  return row;
}

CommandReport MakeActorReport(const ActorConstants& c, const ActorQuestion& question,
                              std::vector<std::string> notes) {
  CommandReport report;
  report.facts = {{"env", c.env}, {"algo", c.algo}, {"variant", c.variant}, {"cores", question.cores}};
  for (const Row& row : c.Rows()) report.facts["constants"][row[0].value] = JsonOf(row);
  report.heading = fmt::format(
      "predicted from measured constants: {} on {}{}{}, actors on hosts with {} core{}", c.algo, c.env,
      c.variant.empty() ? "" : " with ", c.variant, question.cores, question.cores == 1 ? "" : "s");
  report.sections.push_back({"constants", "", c.Rows()});
  report.sections.push_back({"actors on other hosts, and a learner", "rows", {}});
  report.plot.title = fmt::format("Predicted steps/s of {} on {} with actors", c.algo, c.env);
  report.plot.x_label = "actors";
  report.plot.y_label = "environment steps per second";
  const auto add = [&](int actors) {
    const ActorForecast row = PredictActors(c, question, actors);
    report.sections.back().rows.push_back(FiguresOf(c, row));
    report.Plot("predicted", actors, row.steps_per_s);
    report.Plot("sum of actors alone", actors, row.sum_steps_per_s).faint = true;
  };
  for (int actors = 1; actors < question.up_to; actors *= 2) add(actors);
  add(question.up_to);
  report.notes = std::move(notes);
  return report;
}

}  // namespace trireme
