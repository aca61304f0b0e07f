// Runs a training run from its settings to its result: the only place where algorithms meet communication.
//
// One thread per worker, in one or more processes. In a synchronous run all workers go through the same loop:
// iterate, and evaluate together where that is due; then the leader decides (checkpoint? stop?) and tells the
// others; then all do what was decided. Decisions that influence the result depend only on steps and returns,
// never on time, so runs are reproducible; checkpoints, which do not influence it, go by time. In an
// asynchronous run every worker iterates on its own and the first evaluates in between; those of one process
// meet for checkpoints and at the end, those that servers connect meet nowhere.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/system.h"
#include "trireme/base/version.h"
#include "trireme/comm/peer_communicator.h"
#include "trireme/metrics/report.h"
#include "trireme/rpc/transport.h"
#include "trireme/train/observer.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trained_policy.h"

namespace trireme {

// A worker made slow on purpose, to see what that does to the others: `factor` times as long for the same
// work.
struct Straggler {
  int worker = -1;  // none
  double factor = 1;
};

struct TrainOptions {
  TrainObserver* observer = nullptr;  // told of everything, in the first process
  bool json = false;                  // no progress for people
  // What wall and processor times count from. Processor time 0 is the start of this process, and of those that step
  // environments for it; these count from the start of the training otherwise.
  double started_s = MonotonicSeconds();
  double started_cpu_s = CpuSeconds();
  Straggler straggler = {};
  const std::atomic<bool>* stop =
      nullptr;  // set by a signal: write a checkpoint and stop at the next iteration
  PeerCommunicator* processes = nullptr;  // that train together: this one's end; null when it is alone
  // Store server: what the program is, how to prove it, what is started where the run has servers of its own
  // (a file, or a name to be looked for in PATH), whether acknowledged pushes are listed, and a line for
  // people, from any thread.
  std::string version = Version();
  Security security = {};
  std::string server_program = "trireme";
  bool audit = false;
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct TrainResult {
  RunFacts facts;
  bool interrupted = false;
  std::vector<float> params = {};  // as the run left them
  bool nothing_to_do = false;      // it was done when it was resumed
};

// Trains in a folder that was created or resumed; continues from its newest checkpoint if there is one.
// Blocks until done. Throws Error; what was written before stays usable for a resume. Of several processes
// the first one calls this, and it alone has a folder.
TrainResult Train(const RunSettings& settings, const RunFolder& folder, const TrainOptions& options);
// A run without files: no checkpoints, nothing to resume, and nothing is printed.
TrainResult Train(const RunSettings& settings, TrainObserver& observer, const TrainOptions& options);
TrainResult Train(const RunSettings& settings, TrainObserver& observer);
// The part of the other processes, which must have the same settings. Blocks until the run ends. Throws
// Error.
void TrainAlong(const RunSettings& settings, const TrainOptions& options);

// Evaluates a policy of a run. Of a run that keeps no best policy, because it is older or was never evaluated, the last one;
// `which` of the facts says so. Nothing when `stop` was set before it came to its end. Throws Error.
std::optional<RunFacts> EvaluateRun(const RunSettings& settings, const RunFolder& folder, Which which,
                                    int episodes, std::uint64_t seed,
                                    const std::atomic<bool>* stop = nullptr);

}  // namespace trireme
