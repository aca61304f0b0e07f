// The parts of the module trireme._trireme, which the package trireme makes into what its users see. Python passes and
// gets plain values here: numbers, texts, lists, dictionaries, arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/env/spec.h"

namespace trireme::python {

namespace nb = nanobind;

void AddRuns(nb::module_& m);     // train, policies
void AddVec(nb::module_& m);      // native environments, stepped from Python
void AddObjects(nb::module_& m);  // environments of this interpreter

// Names of environments of this interpreter begin with it.
inline constexpr const char* kObjectPrefix = "object:";

// Options and settings, as texts.
using Texts = std::vector<std::pair<std::string, std::string>>;

nb::dict SpecToDict(const EnvSpec& spec);

}  // namespace trireme::python
