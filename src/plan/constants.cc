#include "trireme/plan/constants.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

// As a person likes to read it; the unit follows from the name.
std::string Readable(const ConfigFields::Field& field) {
  const Json value = Json::parse(field.get());
  if (value.is_array()) return fmt::format("{} .. {}", value.front().dump(), value.back().dump());
  const std::string_view name = field.name;
  const bool seconds = name.ends_with("_s") && !name.ends_with("per_s");
  if (seconds || name.ends_with("_s_per_float")) return FormatSeconds(value);
  return fmt::format("{:.6g}", value.get<double>());
}

}  // namespace

void PlanConstants::Fields(ConfigFields& field) {
  field("env", env, "environment the round was measured with");
  field("algo", algo, "algorithm the round was measured with");
  field("variant", variant, "precision, codec, local steps and split it was measured with");
  field("floats", floats, "floats of a gradient, with the statistics that travel along", AtLeast(0));
  field("members", members, "workers of a group that computes one network", Between(1, 64));
  field("steps_per_round", steps_per_round, "environment steps between two pushes", NonNegative());
  field("round_fixed_s", round_fixed_s, "computing in a round, the part that every worker has in full",
        NonNegative());
  field("round_split_s", round_split_s, "computing in a round, the part that workers in step split",
        NonNegative());
  field("round_times", round_times,
        "how rounds vary: times of each hundredth of them, in thousandths of a usual one", Between(0, 1e9));
  field("crowding", crowding, "computing takes so many times longer when all processors of a host compute",
        AtLeast(1));
  field("notices_per_round", notices_per_round, "short exchanges per round, of workers in step",
        NonNegative());
  field("apply_s_per_float", apply_s_per_float, "clipping and applying a gradient", NonNegative());
  field("shared_s", shared_s, "pull and push in memory that threads share", NonNegative());
  field("exchange_bytes", exchange_bytes, "an exchange, or a push, between hosts; 0: a gradient as it is",
        NonNegative());
  field("answer_bytes", answer_bytes, "parameters from a server to a worker; 0: as they are", NonNegative());
  field("exchanges_per_round", exchanges_per_round, "of workers in step; less than 1 with local steps",
        UnitInterval());
  field("encode_s", encode_s, "a codec's time for a gradient", NonNegative());
  field("decode_s", decode_s, "the same for a message", NonNegative());
  field("network_latency_s", network.latency_s, "a message between hosts, however short", NonNegative());
  field("network_bytes_per_s", network.bytes_per_s, "a host's link, in each direction", Positive());
  field("threads_latency_s", threads.latency_s, "a meeting of the threads of a process", NonNegative());
  field("threads_bytes_per_s", threads.bytes_per_s, "exchanging and adding between threads", Positive());
  field("trip_worker_s", trip.worker_s, "a worker's processor time for a push and its answer", NonNegative());
  field("trip_server_s", trip.server_s, "the same of the server, without applying", NonNegative());
  field("trip_latency_s", trip.latency_s, "the rest of a trip, to a server on the same host", NonNegative());
  field("trip_fixed_share", trip_fixed_share, "of a trip's time, what the shortest message takes as well",
        UnitInterval());
  field("trip_crowding", trip_crowding,
        "a trip takes so many times as long when all processors of a host have a worker", Positive());
}

void PlanConstants::ReadFrom(const std::string& path, const std::string& of_env, const std::string& of_algo,
                             const std::string& of_variant) {
  const std::string text = ReadFile(path);
  const std::string file_env = ReadTomlText(text, "env", path), file_algo = ReadTomlText(text, "algo", path);
  const std::string file_variant = ReadTomlText(text, "variant", path);
  if (file_env != of_env || file_algo != of_algo || file_variant != of_variant) {
    const auto describe = [](const std::string& algo, const std::string& env, const std::string& variant) {
      return fmt::format("{} on {}{}{}", algo.empty() ? "nothing" : algo, env.empty() ? "nothing" : env,
                         variant.empty() ? "" : " with ", variant);
    };
    Fail("{} holds constants of {}, not of {}: measure anew, without --constants", path,
         describe(file_algo, file_env, file_variant), describe(of_algo, of_env, of_variant));
  }
  ConfigFields fields;
  fields.Add(*this);
  fields.ApplyToml(text, path);
  if (floats <= 0 || steps_per_round <= 0 || RoundSeconds(1) <= 0) {
    Fail("{}: floats, steps_per_round and round_split_s must be there and above 0", path);
  }
  if (std::ranges::all_of(round_times, [](int time) { return time == 0; })) {
    Fail("{}: round_times must hold a number above 0", path);
  }
  origins = {{"", path}};
}

void PlanConstants::WriteTo(const std::string& path) const {
  PlanConstants values = *this;
  ConfigFields fields;
  fields.Add(values);
  WriteFileAtomically(path, fields.ToToml());
}

std::vector<Row> PlanConstants::Rows() const {
  PlanConstants values = *this;
  ConfigFields fields;
  fields.Add(values);
  std::vector<Row> rows;
  for (const ConfigFields::Field& field : fields.fields()) {
    if (field.name == "env" || field.name == "algo" || field.name == "variant") continue;
    std::string origin = "default";
    for (const auto& [prefix, from] : origins) {
      if (field.name.starts_with(prefix)) origin = from;
    }
    rows.push_back({{"", "constant", field.name},
                    {"value", "value", Json::parse(field.get()), Readable(field)},
                    {"origin", "origin", origin},
                    {"", "meaning", field.doc}});
  }
  return rows;
}

}  // namespace trireme
