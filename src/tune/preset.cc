// The best settings as a file that `train --config` takes, and that can be a preset.
#include <fmt/format.h>

#include <set>

#include "trireme/train/run_config.h"
#include "trireme/tune/tuner.h"

namespace trireme {
namespace {

// Of this search, or of a run, not of what was found.
constexpr const char* kLeftOut[] = {"env",  "env_args", "algo",           "store",   "schedule",
                                    "seed", "target",   "stop_at_target", "workers", "checkpoint_every_s"};

}  // namespace

std::string PresetOf(const RunSettings& settings, const Space& space, const Point& point,
                     const std::string& about) {
  const auto found = ParseRunSettings(settings.fields.ToToml(), "the settings of the study");
  space.Apply(point, found->fields);
  std::set<std::string> searched;
  for (const Parameter& parameter : space.parameters()) searched.insert(parameter.setting);

  std::string text;
  std::string_view rest = about;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    text += fmt::format("# {}\n", rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  // Where the environment is among them, they are all that a run needs; a preset's name says it too.
  text += fmt::format("env = {}\nalgo = {}\n", found->fields.Get("env"), found->fields.Get("algo"));
  if (found->fields.Get("env_args") != "[]")
    text += fmt::format("env_args = {}\n", found->fields.Get("env_args"));
  if (found->fields.Get("store") != "\"allreduce\"")
    text += fmt::format("store = {}\n", found->fields.Get("store"));
  for (const ConfigFields::Field& field : found->fields.fields()) {
    if (std::ranges::find(kLeftOut, field.name) != std::end(kLeftOut)) continue;
    const std::string value = field.get();
    if (value != field.default_text || searched.contains(field.name))
      text += fmt::format("{} = {}\n", field.name, value);
  }
  return text;
}

}  // namespace trireme
