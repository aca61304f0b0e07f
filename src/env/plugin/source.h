// Environments of plug-ins, by name:
//
//   plugin:./libmine.so          the only environment of this file (a name with a slash, or that ends with .so)
//   plugin:./libmine.so:Name     one of several
//   plugin:mine[:Name]           libmine.so or mine.so in a folder of TRIREME_PLUGIN_PATH (separated by colons), or in a folder
//                                envs where plug-ins of the program are (base/plugin.h)
#pragma once

#include "trireme/env/registry.h"

namespace trireme {

EnvSource PluginSource();

}  // namespace trireme
