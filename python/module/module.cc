#include "module.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "trireme/algo/algorithm.h"
#include "trireme/base/error.h"
#include "trireme/base/version.h"
#include "trireme/env/registry.h"

namespace trireme::python {

nb::dict SpecToDict(const EnvSpec& spec) {
  constexpr const char* kKinds[] = {"discrete", "box", "multi_discrete"};
  nb::dict dict;
  dict["name"] = spec.name;
  dict["obs_shape"] = spec.obs.shape;
  dict["obs_type"] = spec.obs.type == ObsType::kUint8 ? "uint8" : "float32";
  dict["action_kind"] = kKinds[static_cast<int>(spec.action.kind)];
  dict["action_parts"] = spec.action.parts;
  dict["action_low"] = spec.action.low;
  dict["action_high"] = spec.action.high;
  dict["masks"] = spec.masks;
  dict["note"] = spec.note;
  dict["max_episode_steps"] = spec.max_episode_steps;
  dict["reward_threshold"] = spec.reward_threshold ? nb::cast(*spec.reward_threshold) : nb::none();
  return dict;
}

namespace {

std::vector<std::string> EnvNames() {
  std::vector<std::string> names;
  for (const EnvEntry& env : AllEnvs()) names.push_back(env.spec.name);
  return names;
}

std::vector<std::string> EnvPrefixes() {
  std::vector<std::string> prefixes;
  for (const EnvSource& source : AllEnvSources()) prefixes.push_back(source.prefix);
  return prefixes;
}

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const AlgorithmEntry& entry : AllAlgorithms()) names.push_back(entry.name);
  return names;
}

}  // namespace

NB_MODULE(_trireme, m) {
  nb::set_leak_warnings(false);  // whoever stops a program in the middle need not read about it
  nb::exception<Error>(m, "Error");
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const std::filesystem::filesystem_error& failed) {
      PyErr_Format(PyExc_OSError, "cannot use %s: %s", failed.path1().c_str(),
                   failed.code().message().c_str());
    }
  });
  m.def("version", &Version);
  m.def("env_names", &EnvNames);
  m.def("env_prefixes", &EnvPrefixes);
  m.def("algorithm_names", &AlgorithmNames);
  AddRuns(m);
  AddVec(m);
  AddObjects(m);
}

}  // namespace trireme::python
