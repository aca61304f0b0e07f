// The file of `trireme tune --space`: TOML, one key for each setting.
//
//   only = ["learning_rate", "epochs"]      # of those that have a range of their own; without it, all
//   leave = ["gamma"]                       # not searched: stays as the preset has it
//   clip = 0.2                              # not searched: has this value
//   epochs = {high = 20}                    # low and scale as they were
//   rms_alpha = {low = 0.9, high = 0.999, scale = "near_one"}
//   activation = {choices = ["tanh", "relu"]}
//   hidden = {layers = [1, 3], width = [16, 256]}
//   momentum = {low = 0.5, high = 0.95, when = "optimizer = momentum"}   # or "momentum | sgd"
//
// What is described is searched, whatever `only` names.
#pragma once

#include <string>
#include <string_view>

#include "trireme/tune/space.h"

namespace trireme {

// Throws Error: what is no TOML, or says something that is not above. Names and ranges are checked by MakeSpace.
SpaceChanges ReadSpaceFile(std::string_view text, const std::string& origin);

}  // namespace trireme
