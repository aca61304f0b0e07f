// The checks of env_check.h in a GoogleTest:
//
//   TEST(MyEnv, Conforms) { CheckEnv(FindEnv("MyEnv-v0")); }
#pragma once

#include <gtest/gtest.h>

#include <exception>

#include "trireme/env/env_check.h"
#include "trireme/env/registry.h"

namespace trireme {

inline void CheckEnv(const EnvEntry& env) {
  for (const EnvCheck& check : EnvChecks()) {
    try {
      check.run(env);
    } catch (const std::exception& error) {
      ADD_FAILURE() << env.spec.name << ", " << check.what << ": " << error.what();
    }
  }
}

}  // namespace trireme
