// The ways to place parameters that are predicted and measured: one row each.
//
// Another way is another row, which tables and JSON show at once. To be predicted it needs facts that Simulate goes by,
// its constants with Knows (constants.h), and their measurement in Calibrate (runs.cc).
#pragma once

#include <string_view>

#include "trireme/server/protocol.h"

namespace trireme {

struct PlanWay {
  std::string_view name;
  std::string_view round;  // what happens in one, for people
  // How a run has it.
  std::string_view store = "";
  Pace pace = Pace::kSync;
  // Facts that the simulation goes by.
  bool in_step = false;     // an update waits for all workers, who split a batch; else each brings one
  bool on_servers = false;  // else in the memory of the workers
  bool bounded = false;     // nobody is far ahead of the slowest
  constexpr bool one_process() const { return !in_step && !on_servers; }
  // Why there is no simulation of it.
  std::string_view not_predicted = "";
};

inline constexpr PlanWay kAllReduceWay{.name = "allreduce",
                                       .round = "replicas in step, who split a batch",
                                       .store = "allreduce",
                                       .in_step = true};
inline constexpr PlanWay kServerSyncWay{
    .name = "server-sync",
    .round = "in step through servers",
    .not_predicted =
        "no simulation was shown to be within 15 % of real runs; `trireme bench speedup --store server`"
        " measures it"};
inline constexpr PlanWay kAsyncWay{.name = "async",
                                   .round = "servers apply each push at once",
                                   .store = "server",
                                   .pace = Pace::kAsync,
                                   .on_servers = true};
inline constexpr PlanWay kSspWay{.name = "ssp",
                                 .round = "as async, but nobody far ahead of the slowest",
                                 .store = "server",
                                 .pace = Pace::kSsp,
                                 .on_servers = true,
                                 .bounded = true};
inline constexpr PlanWay kSharedWay{
    .name = "shared", .round = "threads of one process, each push applied at once", .store = "shared"};

inline constexpr const PlanWay* kPlanWays[] = {&kAllReduceWay, &kServerSyncWay, &kAsyncWay, &kSspWay,
                                               &kSharedWay};

}  // namespace trireme
