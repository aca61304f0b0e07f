// What every algorithm reports about training episodes. Sums travel as the first three doubles of a worker's
// statistics.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "trireme/algo/blocks.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/metrics/metric_row.h"
#include "trireme/rollout/rollout.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

enum EpisodeStat { kEpisodes, kEpisodeReturn, kEpisodeLength, kEpisodeStats };

inline void AddEpisodes(const EpisodeTotals& episodes, std::span<double> sums) {
  sums[kEpisodes] += episodes.count;
  sums[kEpisodeReturn] += episodes.return_sum;
  sums[kEpisodeLength] += episodes.length_sum;
}

// Means are NaN when no episode ended.
inline void ReportEpisodes(std::span<const double> totals, MetricRow& row) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double count = totals[kEpisodes];
  row.Set("episode_return_mean", count > 0 ? totals[kEpisodeReturn] / count : kNone);
  row.Set("episode_length_mean", count > 0 ? totals[kEpisodeLength] / count : kNone);
  row.Set("episodes", count);
}

// The same over all shards of all workers that move in step. A shard has TakeEpisodes, or a rollout that has it.
template <class Shard>
void ShareEpisodes(std::vector<Shard>& shards, ParameterStore& store, MetricRow& row) {
  ShardSum<double> sum(kEpisodeStats);
  const auto add = [](Shard& shard, std::span<double> sums) {
    if constexpr (requires { shard.TakeEpisodes(); }) {
      AddEpisodes(shard.TakeEpisodes(), sums);
    } else {
      AddEpisodes(shard.rollout.TakeEpisodes(), sums);
    }
  };
  ReportEpisodes(SumOverShards(shards, store, sum, add), row);
}

}  // namespace trireme
