// The text of env_plugin.h, which `trireme envs --plugin-header` prints. Its source is made by the build.
#pragma once

namespace trireme {

const char* PluginHeader();

}  // namespace trireme
