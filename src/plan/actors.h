// What actors on other hosts bring to a learner (docs/actors.md): measured on this machine, and predicted from that.
//
// A learner learns from what comes, so its steps/s are the least of what the actors collect, what the messages between
// them let through, and what it can learn.
//
// PredictActors and MakeActorReport are pure functions; the same question and constants give the same text.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/metrics/figures.h"
#include "trireme/plan/constants.h"
#include "trireme/train/run_config.h"

namespace trireme {

struct ActorConstants {
  std::string env = {}, algo = {}, variant = {};  // as in PlanConstants
  double actor_steps_per_s = 0;    // of one that is alone, with a learner that takes everything
  double actor_processors = 0;     // that it keeps busy meanwhile
  double learner_steps_per_s = 0;  // where experience is always waiting
  double trajectory_steps = 0, trajectory_bytes = 0, policy_bytes = 0;
  double trajectories_per_update = 1;
  Link network = {.latency_s = 30e-6, .bytes_per_s = 1.25e9};
  // As in PlanConstants.
  std::vector<std::pair<std::string, std::string>> origins = {};

  // Name, value, origin and meaning of each, without env, algo and variant.
  std::vector<Row> Rows() const;
};

struct ActorQuestion {
  int up_to = 64;  // actors
  int hosts = 0;   // that share them, where there are as many actors; 0: one for each `cores` actors
  int cores = 1;   // of a host
};

struct ActorForecast {
  int actors = 0, hosts = 0;
  double sum_steps_per_s = 0;  // of what each reaches alone, over this network
  double steps_per_s = 0;
  double link_busy = 0;         // share, of the direction that has more to carry
  std::string_view limit = "";  // actors, processors, latency, network, learner
};

ActorForecast PredictActors(const ActorConstants& constants, const ActorQuestion& question, int actors);

// For 1, 2, 4, ... actors, and as many as were asked for. docs/plan.md describes the JSON.
CommandReport MakeActorReport(const ActorConstants& constants, const ActorQuestion& question,
                              std::vector<std::string> notes);

// Settings of a run whose actors join at that address, resolved. Throws Error.
using MakeActorSettings = std::function<std::unique_ptr<RunSettings>(const std::string& listen)>;

// All but the network, in about `seconds`: an actor sends to a desk that takes everything, then a learner is sent what that
// has collected, again and again. Both through real streams of this host. Throws Error, also when `stop` is set.
ActorConstants MeasureActors(const MakeActorSettings& make_settings, double seconds,
                             const std::atomic<bool>& stop);

}  // namespace trireme
