// What a finished run leaves for a person to look at: report.html and learning_curve.svg.
//
// Both are self-contained (no scripts, nothing loaded from elsewhere) and any text in them is escaped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/metrics/plot.h"
#include "trireme/picture/picture.h"

namespace trireme {

// How one worker spent its time (since the number of workers changed last). Its own rate is steps / busy_s:
// what it would reach if it never had to wait for others.
struct WorkerFacts {
  std::int64_t steps = 0;  // of its own environments
  double busy_s = 0;
  double idle_s = 0;  // waiting for others
  // By codecs: bytes that its messages, and those to it, did without, and what that took, which is part of busy_s.
  std::int64_t bytes_saved = 0;
  double compress_s = 0, decompress_s = 0;
};

// A way to another process, and what training sent over it.
struct LinkFacts {
  int worker = 0;
  std::string to;
  double latency_s = 0, bytes_per_s = 0;  // measured when the run began
  std::uint64_t bytes = 0, messages = 0;  // since this process began
  double estimate_s = 0;                  // messages * latency_s + bytes / bytes_per_s
  double waited_s = 0;
};

// The result of a run, the same figures as the last line of --json. NaN: not measured.
struct RunFacts {
  std::string env;
  std::string env_options = {};  // those that are not the defaults: "max_steps=200"
  std::string env_note = {};     // how its observations are put together
  // Of environments in host processes, since this process began: how often they failed and were made anew, why the last
  // time, and the first rule that one broke without harm.
  std::int64_t env_failures = 0;
  std::string env_last_failure = {}, env_warning = {};
  std::string algo;
  std::string store;
  std::string device = "fused";    // what has computed networks
  std::string precision = "fp32";  // and with how many bits
  std::string products = "fp32";   // what multiplies: fp32, avx512_bf16, or libtorch
  std::string compress = {};       // the codec of gradients; empty: none
  int workers = 1;
  // Workers that compute one network together: how, bytes of parameters and moments of each, and of a pipeline, since this
  // process began, the share of time each was idle in its updates, beside (stages - 1) / (micro-batches + stages - 1).
  std::string model_parallel = "none";
  std::vector<std::uint64_t> model_bytes = {};
  std::vector<double> bubbles = {};
  double expected_bubble = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
  double wall_s = 0;
  double cpu_s = 0;
  double steps_per_s = 0;
  // Where workers and the rest were chosen by --parallel auto: what it expected, and what they have reached in their
  // iterations, so without setting up and evaluations.
  double predicted_steps_per_s = std::numeric_limits<double>::quiet_NaN();
  double training_steps_per_s = std::numeric_limits<double>::quiet_NaN();
  double eval_return_mean = 0;
  double eval_return_std = 0;
  int eval_episodes = 0;
  int eval_cut_off = 0;  // of them, since they had no end
  // The best evaluation of the run; the one above is the last.
  double best_return_mean = std::numeric_limits<double>::quiet_NaN();
  double best_return_std = std::numeric_limits<double>::quiet_NaN();
  std::optional<std::int64_t> best_steps = {};
  std::string which = {};        // of an evaluation afterwards: "best" or "last" policy
  std::optional<double> target;  // return to reach
  bool reached_target = false;
  std::optional<double> time_to_target_s;
  std::optional<std::int64_t> steps_to_target;
  std::string params_sha256;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t rounds = 0;            // updates of the parameters
  std::uint64_t experience_bytes = 0;  // memory for rollouts and replay
  std::vector<WorkerFacts> per_worker = {};
  std::vector<LinkFacts> links = {};
  int actors = 0;
  // With actors: how many trajectories were by policies 0, 1, 2, ... versions old when they were learned from, in the
  // last process of the run; the last counts all that were older. Empty otherwise.
  std::vector<std::uint64_t> lag = {};
  double lag_mean = 0;
  std::uint64_t lag_most = 0;
  std::uint64_t too_old = 0;  // trajectories that were left out
  // With central inference, in the last process of the run, by powers of two (1, 2 and 3, 4 to 7, ...): how many environments
  // were evaluated together, and microseconds from an actor's request to its answer. Empty otherwise.
  std::vector<std::uint64_t> inference_batches = {}, inference_latency_us = {};
  double inference_batch_mean = 0, inference_latency_us_mean = 0;
  std::uint64_t inference_incomplete = 0;  // evaluations that an actor was too late for
  // Asynchronous runs: how many gradients were 0, 1, 2, ... versions old when they were applied; the last
  // counts all that were older. Empty otherwise.
  std::vector<std::uint64_t> staleness = {};
  double staleness_mean = 0;
  std::uint64_t staleness_most = 0;

  // The environment with its options, for people.
  std::string task() const { return env_options.empty() ? env : env + ' ' + env_options; }
};

// A picture of an evaluation episode.
struct ReportPicture {
  Picture picture;
  std::string caption;
};

// Some of them, in the order of time.
struct ReportStrip {
  std::vector<ReportPicture> pictures = {};
  std::string note = {};  // why there are none, if there should be some
};

struct RunReport {
  RunFacts facts;
  PlotSeries evaluation;  // return over steps, held-out seeds; name and style are set by the report
  PlotSeries training;    // mean return of training episodes over steps
  std::vector<LinePlot>
      details;         // small plots below the learning curve: losses, entropy, KL, rate; sizes are set
  std::string config;  // the resolved settings, as saved in config.toml
  ReportStrip strip = {};
};

// "118 us, 1100 MB/s; 24.3 MiB in 2.3k messages: 0.31 s by these figures, waited 0.42 s"
std::string LinkText(const LinkFacts& link);

// Of a run with predicted_steps_per_s: "1.2M, predicted 1.3M by --parallel auto (-8 %)".
std::string PredictionText(const RunFacts& facts);

// One JSON object on one line: the contract of --json.
std::string ResultJson(const RunFacts& facts);

LinePlot LearningCurve(const RunReport& report);
std::string ReportHtml(const RunReport& report);

// Writes learning_curve.svg and report.html into `folder`, each atomically. Throws Error naming the path.
void WriteReport(const std::filesystem::path& folder, const RunReport& report);

}  // namespace trireme
