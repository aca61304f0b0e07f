// The presets of presets/*.toml, compiled into the binary.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct Preset {
  std::string name;  // <env>.<algo>
  std::string text;  // TOML
};

// In name order. Defined in a source that the build makes from the files.
const std::vector<Preset>& AllPresets();

}  // namespace trireme
