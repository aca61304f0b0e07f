// What a worker that leads keeps of the run, and one that may come to lead already keeps in mind: rows of
// metrics, the line a person watches, the best policy, checkpoints. Files and the line need a folder; an
// observer is told in any case.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/metrics/metric_row.h"
#include "trireme/train/best_policy.h"
#include "trireme/train/run_log.h"
#include "trireme/train/trainer.h"

namespace trireme {

class RunKeeper {
 public:
  // `folder`: of the run, if it has one. Both it and `observer` are null for a worker that never leads. All
  // outlive the keeper.
  RunKeeper(const RunSettings& settings, const Network& network, const RunFolder* folder,
            TrainObserver* observer, const TrainOptions& options);

  // The run goes on from a checkpoint with this progress. Throws Error.
  void GoOn(RunProgress& progress);
  // A line for people, to be printed when the worker comes to lead; empty: none.
  void SayWhenOpened(std::string line) {
    if (!line.empty()) opening_lines_.push_back(std::move(line));
  }
  // Training begins here: what steps per second and the time to the next checkpoint count from.
  void Begin(std::int64_t steps);
  // The worker leads from now on. The folder changes only here. Throws Error.
  void Open(const RunProgress& progress);
  bool opened() const { return opened_; }
  // Whether WriteCheckpoint leaves anything.
  bool keeps_checkpoints() const { return folder_ != nullptr; }

  // An evaluation after `progress.steps`, of which the best is noted in `progress`. policy(): what was evaluated.
  // `leads`: this worker does.
  void Record(const Evaluation& evaluation, const MakePolicy& policy, double wall_s, bool leads,
              RunProgress& progress);
  // The rest is for the leader, who may have become it at any answer of a server.
  void Report(const MetricRow& measured, double wall_s, const RunProgress& progress);
  // `states`: encoded, of all ranks. Of those that are not there it is empty: then the checkpoint has
  // parameters, but no experience. Of those that compute one network together it is the first one's that counts.
  // `learned`: see LearnedState.
  void WriteCheckpoint(std::vector<std::string> states, StateWriter&& learned, RunProgress& progress);
  // Whether checkpoint_every_s have passed since the last one.
  bool CheckpointDue() const;

 private:
  bool may_lead() const { return folder_ != nullptr || observer_ != nullptr; }

  const RunSettings& settings_;
  const RunConfig& run_;
  const Network& network_;
  const RunFolder* folder_;
  TrainObserver* observer_;
  const TrainOptions& options_;
  std::int64_t first_step_ = 0;  // of this process
  double last_checkpoint_s_ = 0;
  std::vector<std::string> opening_lines_;
  BestPolicy best_;
  bool opened_ = false;          // this worker leads, or has led
  std::unique_ptr<RunLog> log_;  // then, if there is a folder
};

}  // namespace trireme
