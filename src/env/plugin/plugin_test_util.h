// What the tests of plug-ins share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/env_plugin.h"

namespace trireme {

inline constexpr const char* kName = "plugin:./libtest.so";

inline std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
#define EXPECT_SAYS(message, part)                                 \
  do {                                                             \
    const std::string said = message;                              \
    EXPECT_NE(said.find(part), std::string::npos) << "  " << said; \
  } while (false)

// An environment that keeps the rules, of which tests change something.
inline const trireme_option kWalkOptions[] = {{"length", TRIREME_INT, 6, nullptr, 2, 50, "places"},
                                              {"pay", TRIREME_FLOAT, 0.5, nullptr, 0, 0, "at the end"},
                                              {"back", TRIREME_BOOL, 0, nullptr, 0, 0, "may go back"},
                                              {"word", TRIREME_TEXT, 0, "hello", 0, 0, "of no use"}};

struct Walk {
  int place;
};
// Bytes, two parts, masks: everything that CartPole has not.
inline const char* walk_describe(const trireme_value* options, trireme_spec* spec) {
  const int32_t parts[] = {2, 3};
  trireme_obs_bytes(spec, 2, 1, 3);
  trireme_multi_discrete(spec, 2, parts);
  spec->masks = 1;
  spec->max_episode_steps = 30;
  return options[3].text == std::string("bad") ? "bad is no word" : nullptr;
}
inline void ShowWalk(const Walk* walk, trireme_copy* copy) {
  for (int k = 0; k < 6; ++k) copy->bytes[k] = static_cast<uint8_t>(walk->place * (k + 1));
  if (copy->options[2].whole == 0 || walk->place == 0) copy->mask[0] = 0;
}
inline void walk_reset(Walk* walk, trireme_copy* copy) {
  walk->place = static_cast<int>(trireme_below(copy->random, 2));
  ShowWalk(walk, copy);
}
inline void walk_step(Walk* walk, trireme_copy* copy) {
  walk->place += copy->action[0] == 1 ? 1 : -1;
  if (trireme_uniform(copy->random) < 0.1) copy->truncated = 1;
  copy->terminated = walk->place >= copy->options[0].whole && copy->truncated == 0;
  copy->reward =
      copy->terminated != 0 ? static_cast<float>(copy->options[1].number) : -0.1f * copy->action[1];
  ShowWalk(walk, copy);
}
TRIREME_SINGLE_ENV(walk, Walk, "Walk-v0", "walk to the end", kWalkOptions, 4)

}  // namespace trireme
