// What a prediction is made from: how long things take.
//
// A round is what lies between two pushes of a gradient. A worker that has 1/k of its work computes for
//
//   (round_fixed_s + round_split_s / k) * ratio,      ratio drawn from round_times, scaled to mean 1
//
// and applying, adding and copying gradients take so much per float. Links cost latency + bytes / bandwidth.
// A trip is a request to a server and its answer; it also costs processor time at both ends.
// docs/plan.md describes each constant. A file of constants is TOML with the names below.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {

// What carries messages: a message of n bytes takes latency_s + n / bytes_per_s.
struct Link {
  double latency_s = 0;
  double bytes_per_s = 1;

  double Transfer(double bytes) const { return bytes / bytes_per_s; }
  double Seconds(double bytes) const { return latency_s + Transfer(bytes); }
};

// A trip with n floats each way takes fixed_s + n * s_per_float of a processor, at one of its ends.
struct TripCost {
  double fixed_s = 0;
  double s_per_float = 0;

  double Seconds(double floats) const { return fixed_s + s_per_float * floats; }
};

struct PlanConstants {
  std::string env, algo;  // what was measured
  int floats = 0;         // of one gradient, with the statistics that travel along
  double steps_per_round = 0;
  double round_fixed_s = 0;
  double round_split_s = 0;
  std::vector<int> round_times = {1000};
  double crowding = 1;
  double notices_per_round = 0;
  double notice_bytes = 0;
  double apply_s_per_float = 0;
  double add_s_per_float = 0;
  double copy_s_per_float = 0;
  double shared_s_per_float = 0;
  Link network, loopback, threads;
  TripCost trip_worker, trip_server;
  double trip_latency_s = 0;
  double trip_overlapped = 1;
  double trip_crowding = 1;
  double poll_s = 0;

  void Fields(ConfigFields& field);

  // Trips that cost nothing were never measured: what goes through servers is not known then.
  bool knows_trips() const { return trip_worker.Seconds(floats) > 0 && trip_server.Seconds(floats) > 0; }
  double gradient_bytes() const { return sizeof(float) * static_cast<double>(floats); }
  // Mean time to compute 1/k of a round, on a processor that others leave alone.
  double RoundSeconds(double k) const { return round_fixed_s + round_split_s / k; }
};

// Constants and where each of them came from.
class ConstantTable {
 public:
  ConstantTable() { fields_.Add(values); }
  ConstantTable(const ConstantTable&) = delete;
  ConstantTable& operator=(const ConstantTable&) = delete;

  PlanConstants values;

  // Reads all of them. Throws Error when the file is not about `env` and `algo`, or something is missing.
  void ReadFrom(const std::string& path, const std::string& env, const std::string& algo);
  // Throws Error.
  void WriteTo(const std::string& path) const;

  // Notes where the constants whose names start with `prefix` came from; later notes replace earlier ones.
  void SetOrigin(const std::string& prefix, const std::string& origin);

  struct Row {
    std::string name;
    std::string value;  // for people: "12.3 us"
    std::string exact;  // as in a file of constants
    std::string origin, doc;
  };
  std::vector<Row> Rows() const;  // without env and algo
  // An aligned table of name, value, origin and meaning.
  std::string ToText() const;

 private:
  ConfigFields fields_;
  std::map<std::string, std::string> origins_;  // by name
};

}  // namespace trireme
