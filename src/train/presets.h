// The presets of presets/*.toml, compiled into the binary.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct Preset {
  std::string name;  // <env>.<algo> or <env>.<algo>.<store>
  std::string text;  // TOML
};

// In the order of file names. Defined in a source that the build makes from the files.
const std::vector<Preset>& AllPresets();

}  // namespace trireme
