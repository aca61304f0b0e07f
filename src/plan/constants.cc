#include "trireme/plan/constants.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/parse.h"
#include "trireme/plan/units.h"

namespace trireme {
namespace {

// As a person likes to read it; the unit follows from the name.
std::string Readable(const ConfigFields::Field& field) {
  const std::string text = field.get();
  if (field.type == "int list") {
    const std::string_view list = std::string_view(text).substr(1, text.size() - 2);
    return fmt::format("{} .. {}", Trim(list.substr(0, list.find(','))),
                       Trim(list.substr(list.rfind(',') + 1)));
  }
  const double value = ParseDouble(text).value_or(0);
  const std::string_view name = field.name;
  if (name.ends_with("bytes_per_s")) return FormatBytesPerSecond(value);
  if (name.ends_with("_s") || name.ends_with("_s_per_float")) return FormatSeconds(value);
  return fmt::format("{:.6g}", value);
}

}  // namespace

void PlanConstants::Fields(ConfigFields& field) {
  field("env", env, "environment the round was measured with");
  field("algo", algo, "algorithm the round was measured with");
  field("floats", floats, "floats of a gradient, with the statistics that travel along", AtLeast(0));
  field("steps_per_round", steps_per_round, "environment steps between two pushes", NonNegative());
  field("round_fixed_s", round_fixed_s, "computing in a round, the part that every worker has in full",
        NonNegative());
  field("round_split_s", round_split_s, "computing in a round, the part that workers in step split",
        NonNegative());
  field("round_times", round_times,
        "how rounds vary: times of each hundredth of them, in thousandths of a usual one", Between(0, 1e9));
  field("crowding", crowding, "computing takes so many times longer when all processors of a host compute",
        AtLeast(1));
  field("notices_per_round", notices_per_round, "small exchanges per round, of workers in step",
        NonNegative());
  field("notice_bytes", notice_bytes, "bytes of such an exchange", NonNegative());
  field("apply_s_per_float", apply_s_per_float, "clipping and applying a gradient", NonNegative());
  field("shared_s", shared_s, "pull and push in memory that threads share", NonNegative());
  field("network_latency_s", network.latency_s, "a message between hosts, however short", NonNegative());
  field("network_bytes_per_s", network.bytes_per_s, "a host's link, in each direction", Positive());
  field("threads_latency_s", threads.latency_s, "a meeting of the threads of a process", NonNegative());
  field("threads_bytes_per_s", threads.bytes_per_s, "exchanging and adding between threads", Positive());
  const auto trip = [&](const std::string& name, Trip& cost, const char* who) {
    field(name + "_trip_worker_s", cost.worker_s,
          fmt::format("a worker's processor time for a push and its answer, {}", who), NonNegative());
    field(name + "_trip_server_s", cost.server_s, "the same of the server, without applying", NonNegative());
    field(name + "_trip_latency_s", cost.latency_s, "the rest of such a trip, to a server on the same host",
          NonNegative());
  };
  trip("sync", sync_trip, "in step");
  trip("async", async_trip, "on its own");
  field("trip_fixed_share", trip_fixed_share, "of a trip's time, what the shortest message takes as well",
        UnitInterval());
  field("trip_crowding", trip_crowding,
        "a trip takes so many times as long when all processors of a host have a worker", Positive());
}

void ConstantTable::ReadFrom(const std::string& path, const std::string& env, const std::string& algo) {
  const std::string text = ReadFile(path);
  const std::string file_env = ReadTomlText(text, "env", path), file_algo = ReadTomlText(text, "algo", path);
  if (file_env != env || file_algo != algo) {
    Fail("{} holds constants of {} on {}, not of {} on {}: measure anew, without --constants", path,
         file_algo.empty() ? "nothing" : file_algo, file_env.empty() ? "nothing" : file_env, algo, env);
  }
  fields_.ApplyToml(text, path);
  if (values.floats <= 0 || values.steps_per_round <= 0 || values.RoundSeconds(1) <= 0) {
    Fail("{}: floats, steps_per_round and round_split_s must be there and above 0", path);
  }
  if (values.round_times.empty() ||
      std::ranges::count(values.round_times, 0) == static_cast<std::ptrdiff_t>(values.round_times.size())) {
    Fail("{}: round_times must hold a number above 0", path);
  }
  SetOrigin("", path);
}

void ConstantTable::WriteTo(const std::string& path) const { WriteFileAtomically(path, fields_.ToToml()); }

void ConstantTable::SetOrigin(const std::string& prefix, const std::string& origin) {
  for (const ConfigFields::Field& field : fields_.fields()) {
    if (field.name.starts_with(prefix)) origins_[field.name] = origin;
  }
}

std::vector<ConstantTable::Row> ConstantTable::Rows() const {
  std::vector<Row> rows;
  for (const ConfigFields::Field& field : fields_.fields()) {
    if (field.name == "env" || field.name == "algo") continue;
    const auto origin = origins_.find(field.name);
    rows.push_back({.name = field.name,
                    .value = Readable(field),
                    .exact = field.get(),
                    .origin = origin == origins_.end() ? "default" : origin->second,
                    .doc = field.doc});
  }
  return rows;
}

std::string ConstantTable::ToText() const {
  std::size_t origin_width = 0;
  const std::vector<Row> rows = Rows();
  for (const Row& row : rows) origin_width = std::max(origin_width, row.origin.size());
  std::string text;
  for (const Row& row : rows) {
    text +=
        fmt::format("  {:<23} {:>12}  {:<{}}  {}\n", row.name, row.value, row.origin, origin_width, row.doc);
  }
  return text;
}

}  // namespace trireme
