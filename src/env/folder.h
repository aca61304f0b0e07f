// Where an environment that is not part of the program is looked for: plug-ins and Python files that are named by relative paths,
// and modules. A run notes the folder in which it was begun, so that it goes on from any other.
//
// An option `folder` of such environments, setting `env_folder` of a run; it says nothing of what the environment is.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/base/config.h"

namespace trireme {

class EnvFolder {
 public:
  static constexpr const char* kName = "folder";

  void AddTo(ConfigFields& field) {
    field(kName, path_,
          "where relative paths and modules are found; empty: in the current folder, which is noted");
  }
  // What is empty becomes the current folder, what is relative absolute.
  void FillIn();
  // The folder, or the current one where that is not chosen, or not there any more.
  std::filesystem::path Now() const;

 private:
  std::string path_;
};

}  // namespace trireme
