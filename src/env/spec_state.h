// What an environment shows and takes, as sections of a state: for whoever needs it and cannot make the environment.
#pragma once

#include <optional>

#include "trireme/base/state.h"
#include "trireme/env/spec.h"

namespace trireme {

void SaveSpec(const EnvSpec& spec, StateWriter& out);
// Nothing where none was saved. Throws Error.
std::optional<EnvSpec> SavedSpec(const StateReader& state);

}  // namespace trireme
