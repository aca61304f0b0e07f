/* A plug-in for tests: two environments, of which the first does what its option `fault` says from the step `at` of a copy's
 * life on. */
#include <stdio.h>
#include <unistd.h>

#include "trireme/env_plugin.h"

static const trireme_option options[] = {
    {"fault", TRIREME_TEXT, 0, "none", 0, 0,
     "segv, abort, divide, overflow, exit, quick_exit, error, nan, beside, print, hang"},
    {"at", TRIREME_INT, 10, NULL, 1, 1e9, "step of the fault"}};
enum { FAULT, AT };

typedef struct {
  int step;  /* of the episode */
  int lived; /* steps of all */
} Fragile;

static const char* fragile_describe(const trireme_value* chosen, trireme_spec* spec) {
  (void)chosen;
  trireme_obs_floats(spec, 2);
  trireme_discrete(spec, 2);
  spec->max_episode_steps = 100;
  return NULL;
}

static void show(Fragile* fragile, trireme_copy* copy) {
  copy->obs[0] = (float)fragile->step / 100.0f;
  copy->obs[1] = 1.0f;
}

static void fragile_reset(Fragile* fragile, trireme_copy* copy) {
  fragile->step = (int)trireme_below(copy->random, 5);
  show(fragile, copy);
}

void quick_exit(int code); /* of later versions of C */

static volatile int zero;
static int* volatile nowhere;

static int fall(int depth) {
  volatile char room[4096];
  room[0] = (char)depth;
  return depth < 0 ? 0 : fall(depth + 1) + room[0];
}

static int is(const trireme_copy* copy, const char* fault) {
  return strcmp(copy->options[FAULT].text, fault) == 0;
}

static void fragile_step(Fragile* fragile, trireme_copy* copy) {
  ++fragile->step;
  show(fragile, copy);
  copy->reward = copy->action[0] == 1 ? 1 : 0;
  if (++fragile->lived < copy->options[AT].whole) return;
  if (is(copy, "segv")) *nowhere = 1;
  if (is(copy, "abort")) abort();
  if (is(copy, "divide")) zero = 100 / zero;
  if (is(copy, "overflow")) zero = fall(0);
  if (is(copy, "exit")) {
    printf("no licence\n");
    exit(0);
  }
  if (is(copy, "quick_exit")) quick_exit(0);
  if (is(copy, "print") && fragile->step % 50 == 0) printf("half of an episode\n");
  if (is(copy, "error")) copy->error = "the ground has given way";
  while (is(copy, "hang")) pause();
  if (is(copy, "nan")) copy->obs[1] = NAN;
  if (is(copy, "beside")) copy->obs[2] = 1;
}

TRIREME_SINGLE_ENV(fragile, Fragile, "Fragile-v0", "breaks on request", options, 2)

static const char* sturdy_describe(const trireme_value* chosen, trireme_spec* spec) {
  fragile_describe(chosen, spec);
  spec->snapshots = 0;
  return NULL;
}
static void sturdy_reset(Fragile* fragile, trireme_copy* copy) { fragile_reset(fragile, copy); }
static void sturdy_step(Fragile* fragile, trireme_copy* copy) {
  ++fragile->step;
  show(fragile, copy);
  copy->reward = copy->action[0] == 1 ? 1 : 0;
}
TRIREME_SINGLE_ENV(sturdy, Fragile, "Sturdy-v0", "never breaks, and cannot be saved", NULL, 0)

TRIREME_PLUGIN(&fragile, &sturdy)
