// The check of `trireme envs NAME --check` that takes a second process: a snapshot is loaded where nothing lies at the
// addresses it has in the first one, as when a run is resumed.
#pragma once

#include <string>
#include <vector>

#include "trireme/env/env.h"

namespace trireme {

// For an environment with snapshots, called `name` and made with these --env-arg. Throws Error that says what was found.
void CheckSnapshotElsewhere(const EnvEntry& env, const std::string& name,
                            const std::vector<std::string>& args);

// What the second process does: loads the snapshot in a file, goes on from there, and leaves beside it what was seen.
inline constexpr const char* kGoOnFlag = "--go-on-from";
void GoOnFrom(const EnvEntry& env, const std::string& file);

}  // namespace trireme
