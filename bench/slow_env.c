/* An environment whose steps take time and no processor, for tune_hosts_bench and actors_bench: what steps it is limited by nothing
 * but itself. */
#include <time.h>

#include "trireme/env_plugin.h"

static const trireme_option options[] = {{"us", TRIREME_INT, 2000, NULL, 1, 999999, "microseconds of a step"}};

typedef struct {
  int step; /* of the episode */
} Slow;

static const char* slow_describe(const trireme_value* chosen, trireme_spec* spec) {
  (void)chosen;
  trireme_obs_floats(spec, 1);
  trireme_discrete(spec, 2);
  spec->max_episode_steps = 20;
  return NULL;
}

static void slow_reset(Slow* slow, trireme_copy* copy) {
  slow->step = 0;
  copy->obs[0] = 1.0f;
}

static void slow_step(Slow* slow, trireme_copy* copy) {
  const struct timespec time = {0, copy->options[0].whole * 1000};
  nanosleep(&time, NULL);
  ++slow->step;
  copy->obs[0] = 1.0f;
  copy->reward = copy->action[0] == 1 ? 1 : 0;
}

TRIREME_SINGLE_ENV(slow, Slow, "Slow-v0", "a step takes two milliseconds of sleep, unless said", options, 1)

TRIREME_PLUGIN(&slow)
