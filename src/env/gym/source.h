// Environments of Gymnasium, and of Python classes that follow its rules, stepped in host processes (host/pool.h).
//
//   gym:LunarLander-v3            of Gymnasium's registry
//   gym:my_package:MyEnv-v0       of one that my_package adds to when it is imported
//   py:path/to/file.py:MyEnv      a class, or a function that makes one
//   py:my_package.module:MyEnv
//
// Arguments of the constructor are EnvArgs. host.py, which is part of the program, runs in the hosts.
#pragma once

#include <string>
#include <vector>

#include "trireme/env/registry.h"

namespace trireme {

EnvSource GymSource();  // gym:
EnvSource PySource();   // py:

}  // namespace trireme
