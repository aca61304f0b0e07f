#include "trireme/env/folder.h"

namespace trireme {

namespace fs = std::filesystem;

void EnvFolder::FillIn() {
  std::error_code error;  // of a current folder that was removed
  const fs::path absolute = fs::absolute(path_.empty() ? "." : path_, error);
  if (error) return;
  const fs::path normal = absolute.lexically_normal();
  path_ = (normal.has_filename() || normal == normal.root_path() ? normal : normal.parent_path()).string();
}

fs::path EnvFolder::Now() const {
  std::error_code error;
  return !path_.empty() && fs::is_directory(path_, error) ? fs::path(path_) : fs::current_path(error);
}

}  // namespace trireme
