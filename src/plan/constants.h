// What a prediction is made from: how long things take.
//
// A round is what lies between two pushes of a gradient. A worker that has 1/k of its work computes for
//
//   (round_fixed_s + round_split_s / k) * ratio,      ratio drawn from round_times, scaled to mean 1.
//
// Links cost latency + bytes / bandwidth. A trip is a push to a server and the parameters that come back. Where workers
// compute one network together, a worker of all this is a group of `members`.
// docs/plan.md describes each constant. A file of constants is TOML with the names in constants.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/metrics/figures.h"
#include "trireme/plan/ways.h"

namespace trireme {

// What carries messages: a message of n bytes takes latency_s + n / bytes_per_s.
struct Link {
  double latency_s = 0;
  double bytes_per_s = 1;

  double Transfer(double bytes) const { return bytes / bytes_per_s; }
  double Seconds(double bytes) const { return latency_s + Transfer(bytes); }
};

// What a trip takes: of a processor at its two ends, and beyond that.
struct Trip {
  double worker_s = 0, server_s = 0, latency_s = 0;
};

struct PlanConstants {
  std::string env, algo, variant;  // what was measured; variant: "precision=bf16 compress=int8"
  int floats = 0;
  int members = 1;
  double steps_per_round = 0, round_fixed_s = 0, round_split_s = 0;
  std::vector<int> round_times = {1000};
  double crowding = 1;
  double notices_per_round = 0;
  double apply_s_per_float = 0;
  double shared_s = 0;
  // Between hosts; 0: gradients as they are.
  double exchange_bytes = 0, answer_bytes = 0;
  double exchanges_per_round = 1, encode_s = 0, decode_s = 0;
  Link network = {.latency_s = 30e-6, .bytes_per_s = 1.25e9};
  Link threads;
  Trip trip;
  double trip_fixed_share = 1, trip_crowding = 1;

  // Where they came from, those whose names have this prefix; the last that fits counts.
  std::vector<std::pair<std::string, std::string>> origins = {};

  void Fields(ConfigFields& field);
  // Reads all of them. Throws Error when the file is about something else, or something is missing.
  void ReadFrom(const std::string& path, const std::string& of_env, const std::string& of_algo,
                const std::string& of_variant = "");
  // Throws Error.
  void WriteTo(const std::string& path) const;
  // Name, value, origin and meaning of each, without env and algo.
  std::vector<Row> Rows() const;

  // Whether there is all that a prediction of this way needs. What costs nothing was never measured.
  bool Knows(const PlanWay& way) const {
    if (!way.not_predicted.empty()) return false;
    if (way.on_servers) return trip.worker_s > 0 && trip.server_s > 0;
    return !way.one_process() || shared_s > 0;
  }
  double gradient_bytes() const { return sizeof(float) * static_cast<double>(floats); }
  // Of a gradient, or of parameters, as it goes from host to host.
  double wire_bytes() const { return exchange_bytes > 0 ? exchange_bytes : gradient_bytes(); }
  double back_bytes() const { return answer_bytes > 0 ? answer_bytes : gradient_bytes(); }
  double apply_s() const { return apply_s_per_float * floats / members; }
  // Mean time to compute 1/k of a round, on a processor that others leave alone.
  double RoundSeconds(double k) const { return round_fixed_s + round_split_s / k; }
};

}  // namespace trireme
