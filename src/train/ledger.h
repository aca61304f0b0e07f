// The account a worker keeps of its part of a run; at the leader, those of all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/experience/central_inference.h"
#include "trireme/experience/sent_experience.h"
#include "trireme/train/account.h"
#include "trireme/train/run_state.h"
#include "trireme/train/topology.h"
#include "trireme/train/trainer.h"

namespace trireme {

class Ledger {
 public:
  // All of them outlive the ledger. `processes` step environments for this one; null where there are none. They are new
  // where the run counts from the start of this process, and may have worked for another run otherwise.
  Ledger(WorkerLinks& links, const TrainOptions& options, const EnvProcesses* processes)
      : links_(links),
        options_(options),
        processes_(processes),
        before_cpu_s_(processes != nullptr && options.started_cpu_s > 0 ? processes->cpu_s() : 0) {}

  // Counts on from where earlier processes of the run ended.
  void GoOn(const RunProgress& earlier);

  void AddSteps(std::int64_t steps) { own_.steps += steps; }
  void AddBusy(double seconds) { own_.busy_s += seconds; }
  // What comes from actors, from now on; null: nothing. It outlives the ledger, or the next call.
  void WaitsFor(const ReceivedExperience* receives);
  // What chooses for actors of this process and others; null: nothing does. It outlives the ledger.
  void TellsOf(const CentralInference* inference) { inference_ = inference; }

  // Since the run began.
  double wall_s() const;
  // Of this worker since this process began, for training.
  Traffic traffic() const;
  // From actors, since this process began.
  ReceivedExperience received() const;
  // By codecs, since the run began.
  std::int64_t bytes_saved() const { return earlier_.bytes_saved + traffic().bytes_saved; }

  // Does something beside the account: checkpoints go by time, so what they send is no part of what the training
  // sends. Time waited is time waited.
  void Aside(const std::function<void()>& act);
  // Collects bytes at the leader, aside.
  std::vector<std::string> GatherAside(std::string bytes);

  // All workers call it: the leader then knows the accounts of all.
  void Gather();
  // The same for threads that need not all be there in the end: of one that failed nothing is known.
  void GatherOrKeepOwn();
  // For a worker that has nobody else to tell of.
  void KeepOwn() { accounts_ = {Own()}; }

  // Of whom the last call of these told.
  const std::vector<WorkerAccount>& accounts() const { return accounts_; }
  // Their sums, with those of earlier processes.
  void SumInto(RunProgress& progress, bool asynchronous) const;

 private:
  WorkerAccount Own();

  WorkerLinks& links_;
  const TrainOptions& options_;
  const EnvProcesses* processes_;
  const ReceivedExperience* receives_ = nullptr;
  const CentralInference* inference_ = nullptr;
  ReceivedExperience received_before_;  // from earlier ones
  double before_cpu_s_;                 // of these processes, before this run
  WorkerFacts own_, earlier_;           // earlier processes: of this worker
  double earlier_wall_s_ = 0, earlier_cpu_s_ = 0;
  Traffic earlier_traffic_;
  std::uint64_t earlier_rounds_ = 0;
  Traffic aside_;
  std::vector<WorkerAccount> accounts_;
};

}  // namespace trireme
