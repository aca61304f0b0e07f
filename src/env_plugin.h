/* env_plugin.h: environments of your own for Trireme, in a shared library, in C (99 or later) or C++ (11 or later).
 *
 * This header is all that is needed. A whole plug-in, made of one copy of one environment:
 *
 *   #include "env_plugin.h"
 *
 *   typedef struct { int place; } Walk;
 *
 *   static const char* walk_describe(const trireme_value* options, trireme_spec* spec) {
 *     (void)options;
 *     trireme_obs_floats(spec, 1);
 *     trireme_discrete(spec, 2);
 *     spec->max_episode_steps = 50;
 *     return NULL;
 *   }
 *   static void walk_reset(Walk* walk, trireme_copy* copy) {
 *     walk->place = (int)trireme_below(copy->random, 5);
 *     copy->obs[0] = walk->place / 10.0f;
 *   }
 *   static void walk_step(Walk* walk, trireme_copy* copy) {
 *     walk->place += copy->action[0] == 1 ? 1 : -1;
 *     copy->obs[0] = walk->place / 10.0f;
 *     copy->reward = -0.1f;
 *     copy->terminated = walk->place == 10;
 *   }
 *   TRIREME_SINGLE_ENV(walk, Walk, "Walk-v0", "walk to place 10", NULL, 0)
 *   TRIREME_PLUGIN(&walk)
 *
 *   cc -O2 -shared -fPIC walk.c -o libwalk.so
 *   trireme envs plugin:./libwalk.so --check        is it right?
 *   trireme train --env plugin:./libwalk.so
 *
 * There are two ways to write an environment:
 *   - one copy at a time, as above (TRIREME_SINGLE_ENV; trireme_class_env for a class in C++), and
 *   - all copies at once: fill in the functions of a trireme_env yourself, with the state of all copies as arrays.
 *     That is the interface; the first way is made of it, further below.
 *
 * Episodes. Trireme decides when one begins: it resets a copy at first, and after each step in which its episode
 * ended; it cuts episodes off at max_episode_steps; it adds up rewards. `terminated` means that the task is over (the pole
 * fell), so that nothing can follow; `truncated` that you cut the episode off although it could have gone on. Never both.
 *
 * Randomness. A reset gets a stream of random numbers that is a function of the run's seed, the copy and the number of
 * its episode. Draw from nothing else, and the same seed gives the same run, on any number of workers.
 *
 * Snapshots. A run that was interrupted goes on exactly, in another process, where the state of a batch can be saved as
 * bytes. Pointers mean nothing there: keep none in such a state, or set spec->snapshots = 0, and a resumed run begins new
 * episodes. Pointers to the options and to their texts are the exception: Trireme sets them to where these are then.
 * `trireme envs NAME --check` loads a snapshot in a second process.
 *
 * Threads. Functions of one batch are called by one thread at a time, which need not always be the same; those of different
 * batches by several threads at once. So keep what changes in the batch, not in global variables. Do not fork,
 * and do not exit: return an error instead.
 *
 * Errors. A function that fails returns a text for the user, one line, which stays valid until the batch's next call;
 * NULL means that all is well. Trireme then ends the run with it. C++ exceptions that leave a function are
 * caught and shown too. A crash ends the program; the last checkpoint is kept.
 *
 * Trireme checks what comes out in every step: numbers are finite, flags 0 or 1, nothing is written outside the buffers.
 *
 * A library is loaded once and stays until the program ends.
 */
#ifndef TRIREME_ENV_PLUGIN_H
#define TRIREME_ENV_PLUGIN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the interface. Trireme refuses plug-ins of another. */
#define TRIREME_PLUGIN_VERSION 1

/* ---- Random numbers (Philox4x32-10, Salmon et al. 2011) ------------------------------------------------------- */

/* A stream: plain data that may be copied, and kept for the whole episode. Draw with the functions below. */
typedef struct trireme_random {
  uint64_t key;
  uint32_t counter[4]; /* of the next block */
  uint32_t block[4];
  uint32_t used; /* numbers of the block that have been drawn; 4: all */
  uint32_t reserved;
} trireme_random;

/* 32 random bits. Two of them seed a generator of your own. */
static inline uint32_t trireme_bits(trireme_random* random) {
  if (random->used >= 4) {
    uint32_t k0 = (uint32_t)random->key, k1 = (uint32_t)(random->key >> 32);
    uint32_t c0 = random->counter[0]++, c1 = random->counter[1], c2 = random->counter[2],
             c3 = random->counter[3];
    int round;
    for (round = 0; round < 10; ++round) {
      const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
      c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
      c1 = (uint32_t)p1;
      c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
      c3 = (uint32_t)p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    random->block[0] = c0;
    random->block[1] = c1;
    random->block[2] = c2;
    random->block[3] = c3;
    random->used = 0;
  }
  return random->block[random->used++];
}

/* Uniform on [0, 1). */
static inline double trireme_uniform(trireme_random* random) {
  const uint64_t high = trireme_bits(random);
  return (double)((high << 21) ^ (trireme_bits(random) >> 11)) * (1.0 / 9007199254740992.0);
}

/* One of 0, ..., n - 1; n > 0. */
static inline uint32_t trireme_below(trireme_random* random, uint32_t n) {
  return (uint32_t)(((uint64_t)trireme_bits(random) * n) >> 32);
}

/* Normal, of mean 0 and deviation 1. */
static inline double trireme_normal(trireme_random* random) {
  const double radius = sqrt(-2.0 * log1p(-trireme_uniform(random)));
  return radius * cos(6.283185307179586476925286766559 * trireme_uniform(random));
}

/* ---- What an environment is ----------------------------------------------------------------------------------- */

enum { TRIREME_FLOAT32 = 0, TRIREME_UINT8 = 1 };                            /* elements of observations */
enum { TRIREME_DISCRETE = 0, TRIREME_BOX = 1, TRIREME_MULTI_DISCRETE = 2 }; /* actions */
enum { TRIREME_MAX_DIMS = 8, TRIREME_MAX_ACTION = 256 };

/* `describe` fills it in. It holds the values marked as defaults before. */
typedef struct trireme_spec {
  /* An observation is an array of this shape, elements of the last dimension next to each other. Networks read bytes
   * divided by 255. */
  int32_t obs_type; /* TRIREME_FLOAT32 (default) or TRIREME_UINT8 */
  int32_t obs_dims; /* 1 ... TRIREME_MAX_DIMS */
  int32_t obs_shape[TRIREME_MAX_DIMS];
  /* An action is a row of action_size floats. Discrete: one float, 0, 1, ..., choices[0] - 1. Multi-discrete: part k is
   * one of 0, ..., choices[k] - 1. Box: dimension k should be in [low[k], high[k]], but may be outside: clip it. */
  int32_t action_type;
  int32_t action_size; /* 1 if discrete; number of parts; number of dimensions */
  int32_t choices[TRIREME_MAX_ACTION];
  float low[TRIREME_MAX_ACTION], high[TRIREME_MAX_ACTION];
  int32_t masks; /* 1: not every choice is allowed in every state, see trireme_buffers; 0 (default) */
  int32_t max_episode_steps; /* Trireme cuts episodes off after so many steps; 0 (default): never */
  double
      reward_threshold; /* return of an episode at which the task counts as solved; NAN (default): nobody says */
  int32_t reproducible; /* 1 (default): the same streams and actions give the same bits, whatever the batch */
  int32_t snapshots;    /* 1 (default): `save` and `load` can be relied on, where the environment has them */
} trireme_spec;

static inline void trireme_obs_floats(trireme_spec* spec, int32_t n) {
  spec->obs_type = TRIREME_FLOAT32;
  spec->obs_dims = 1;
  spec->obs_shape[0] = n;
}
static inline void trireme_obs_bytes(trireme_spec* spec, int32_t height, int32_t width, int32_t channels) {
  spec->obs_type = TRIREME_UINT8;
  spec->obs_dims = 3;
  spec->obs_shape[0] = height;
  spec->obs_shape[1] = width;
  spec->obs_shape[2] = channels;
}
static inline void trireme_discrete(trireme_spec* spec, int32_t choices) {
  spec->action_type = TRIREME_DISCRETE;
  spec->action_size = 1;
  spec->choices[0] = choices;
}
/* Bounds that are not the same in every dimension: change spec->low and spec->high afterwards. */
static inline void trireme_box(trireme_spec* spec, int32_t size, float low, float high) {
  int32_t k;
  spec->action_type = TRIREME_BOX;
  spec->action_size = size;
  for (k = 0; k < size && k < TRIREME_MAX_ACTION; ++k) {
    spec->low[k] = low;
    spec->high[k] = high;
  }
}
static inline void trireme_multi_discrete(trireme_spec* spec, int32_t parts, const int32_t* choices) {
  int32_t k;
  spec->action_type = TRIREME_MULTI_DISCRETE;
  spec->action_size = parts;
  for (k = 0; k < parts && k < TRIREME_MAX_ACTION; ++k) spec->choices[k] = choices[k];
}

enum { TRIREME_BOOL = 0, TRIREME_INT = 1, TRIREME_FLOAT = 2, TRIREME_TEXT = 3 }; /* options */

/* An option of an environment, that a user chooses with --env-arg key=value. */
typedef struct trireme_option {
  const char* key;          /* of a-z, 0-9 and _ */
  int32_t type;             /* TRIREME_BOOL, ... */
  double default_number;    /* bool: 0 or 1 */
  const char* default_text; /* text only; NULL otherwise */
  double low, high;         /* bounds of a number, both included; where both are 0, any number will do */
  const char* help;         /* one line */
} trireme_option;

/* The value of an option: number and whole of a bool (0 or 1) or a number, text of a text. */
typedef struct trireme_value {
  double number;
  int64_t whole; /* number without its fraction */
  const char* text;
} trireme_value;

/* Where a batch puts what it has to say: one row for each of its n copies. Each is aligned to 64 bytes. */
typedef struct trireme_buffers {
  void* obs; /* [n, shape]: float or uint8_t */
  uint8_t*
      masks; /* [n, choices of all parts]: 1 allowed, 0 not, at least one of each part; NULL unless spec.masks */
  float* rewards;      /* [n], 0 at first; NULL in reset */
  uint8_t* terminated; /* [n], 0 at first; set to 1; NULL in reset */
  uint8_t* truncated;  /* [n], 0 at first; set to 1; NULL in reset */
} trireme_buffers;

/* An environment: a table of functions. A batch is `copies` independent copies of it, numbered from 0. None may be
 * NULL but the last three, which are all there or all NULL. */
typedef struct trireme_env {
  const char* name; /* a-z, A-Z, 0-9, _, -, . */
  const char* help; /* one line for `trireme envs` */
  const trireme_option* options;
  uint32_t option_count;
  uint32_t reserved; /* 0 */

  /* What it is with these options, [option_count] in the order above. */
  const char* (*describe)(const trireme_value* options, trireme_spec* spec);
  /* Makes a batch. The options stay where they are until it is destroyed. */
  const char* (*create)(const trireme_value* options, uint32_t copies, void** batch);
  void (*destroy)(void* batch);

  /* Starts an episode of each of these copies, [count] in ascending order, with its stream, and writes their first
   * observations, and masks, to their rows. Leaves all other copies and rows alone. */
  const char* (*reset)(void* batch, uint32_t count, const uint32_t* copies, const trireme_random* streams,
                       const trireme_buffers* to);
  /* A step of every copy. Writes to each row the observation after it, which is the last one where the episode ends;
   * its masks; the reward; and a flag where the episode ends. actions: [copies, action_size]. A choice that the mask forbids
   * may do anything but harm. What happens to a copy depends on that copy alone. */
  const char* (*step)(void* batch, const float* actions, const trireme_buffers* to);

  /* Everything that is needed to go on exactly, as bytes (at an address that suits any type), so that a run that was interrupted does: without them it goes on
   * with new episodes. `save` writes state_bytes(batch) bytes, without pointers (but to options); `load` reads what a batch of the same
   * environment, options and number of copies has saved, maybe on another day, and refuses what does not fit. */
  uint64_t (*state_bytes)(void* batch);
  const char* (*save)(void* batch, void* to);
  const char* (*load)(void* batch, const void* from, uint64_t bytes);
} trireme_env;

/* What the library exports as trireme_env_plugin(). The first two fields are the same in every version. */
typedef struct trireme_plugin {
  uint32_t version;   /* TRIREME_PLUGIN_VERSION */
  uint32_t size;      /* sizeof(trireme_plugin) */
  uint32_t env_size;  /* sizeof(trireme_env) */
  uint32_t spec_size; /* sizeof(trireme_spec) */
  const trireme_env* const* envs;
  uint32_t env_count;
  uint32_t reserved; /* 0 */
} trireme_plugin;

/* Once in a library: TRIREME_PLUGIN(&first, &second), its environments. `--env plugin:./lib.so` takes the only one, and
 * `--env plugin:./lib.so:Name` one of several. */
#ifdef __cplusplus
#define TRIREME_PLUGIN_EXTERN_ extern "C"
#else
#define TRIREME_PLUGIN_EXTERN_
#endif
#define TRIREME_PLUGIN(...)                                                                               \
  static const trireme_env* const trireme_envs_[] = {__VA_ARGS__};                                        \
  TRIREME_PLUGIN_EXTERN_ __attribute__((visibility("default"))) const trireme_plugin* trireme_env_plugin( \
      void);                                                                                              \
  const trireme_plugin* trireme_env_plugin(void) {                                                        \
    static const trireme_plugin plugin = {TRIREME_PLUGIN_VERSION,                                         \
                                          sizeof(trireme_plugin),                                         \
                                          sizeof(trireme_env),                                            \
                                          sizeof(trireme_spec),                                           \
                                          trireme_envs_,                                                  \
                                          sizeof trireme_envs_ / sizeof trireme_envs_[0],                 \
                                          0};                                                             \
    return &plugin;                                                                                       \
  }

/* ---- One copy at a time ----------------------------------------------------------------------------------------
 *
 * TRIREME_SINGLE_ENV(id, State, name, help, options, option_count) makes a trireme_env called `id` out of a struct and
 * three functions:
 *
 *   const char* id_describe(const trireme_value* options, trireme_spec* spec);
 *   void id_reset(State* state, trireme_copy* copy);
 *   void id_step(State* state, trireme_copy* copy);
 *
 * A State is 0 in all its bytes before its first reset, and what it was before the others. It is saved by copying its
 * bytes: if it has pointers, other than to its options, set spec->snapshots = 0 in id_describe. */

/* One copy, as its functions see it. */
typedef struct trireme_copy {
  const trireme_value* options;
  trireme_random* random; /* the episode's stream, in reset and in every step */
  const float* action;    /* [action_size]; NULL in reset */
  float* obs; /* to be written, all of it, in reset and step; NULL if observations are bytes, then: */
  uint8_t* bytes;
  uint8_t* mask;     /* 1 at first: set to 0 what is not allowed; NULL unless spec.masks */
  float reward;      /* the rest: 0 at first, set by a step */
  int terminated;    /* 1: the task is over */
  int truncated;     /* 1: cut off; Trireme does so itself at the time limit */
  const char* error; /* a text: ends the run */
} trireme_copy;

/* Sizes of rows. */
typedef struct trireme_rows_ {
  const trireme_value* options;
  size_t obs, action, mask; /* elements */
  int bytes;                /* observations are */
} trireme_rows_;

static inline trireme_rows_ trireme_rows_of_(const trireme_spec* spec, const trireme_value* options) {
  trireme_rows_ rows;
  int32_t k;
  rows.options = options;
  rows.obs = 1;
  for (k = 0; k < spec->obs_dims; ++k) rows.obs *= (size_t)spec->obs_shape[k];
  rows.action = (size_t)spec->action_size;
  rows.mask = 0;
  for (k = 0; spec->masks && k < spec->action_size; ++k) rows.mask += (size_t)spec->choices[k];
  rows.bytes = spec->obs_type == TRIREME_UINT8;
  return rows;
}

/* Copy i, at its rows. */
static inline trireme_copy trireme_copy_at_(const trireme_rows_* rows, uint32_t i, trireme_random* random,
                                            const float* actions, const trireme_buffers* to) {
  trireme_copy copy;
  copy.options = rows->options;
  copy.random = random;
  copy.action = actions == NULL ? NULL : actions + i * rows->action;
  copy.obs = rows->bytes ? NULL : (float*)to->obs + i * rows->obs;
  copy.bytes = rows->bytes ? (uint8_t*)to->obs + i * rows->obs : NULL;
  copy.mask = rows->mask == 0 ? NULL : to->masks + i * rows->mask;
  if (copy.mask != NULL) memset(copy.mask, 1, rows->mask);
  copy.reward = 0;
  copy.terminated = 0;
  copy.truncated = 0;
  copy.error = NULL;
  return copy;
}

static inline void trireme_put_step_(const trireme_copy* copy, uint32_t i, const trireme_buffers* to) {
  to->rewards[i] = copy->reward;
  to->terminated[i] = (uint8_t)(copy->terminated != 0);
  to->truncated[i] = (uint8_t)(copy->truncated != 0);
}

typedef struct trireme_single_ {
  trireme_rows_ rows;
  size_t copies, state_size;
  trireme_random* random; /* [copies] */
  void* states;           /* [copies] */
} trireme_single_;

static inline void trireme_single_destroy_(void* batch) {
  trireme_single_* single = (trireme_single_*)batch;
  free(single->random);
  free(single->states);
  free(single);
}

static inline const char* trireme_single_create_(const trireme_spec* spec, const trireme_value* options,
                                                 uint32_t copies, size_t state_size, void** batch) {
  trireme_single_* single = (trireme_single_*)calloc(1, sizeof(trireme_single_));
  if (single == NULL) return "not enough memory";
  single->rows = trireme_rows_of_(spec, options);
  single->copies = copies;
  single->state_size = state_size;
  single->random = (trireme_random*)calloc(copies, sizeof(trireme_random));
  single->states = calloc(copies, state_size);
  if (single->random == NULL || single->states == NULL) {
    trireme_single_destroy_(single);
    return "not enough memory";
  }
  *batch = single;
  return NULL;
}

static inline uint64_t trireme_single_bytes_(void* batch) {
  const trireme_single_* single = (const trireme_single_*)batch;
  return (uint64_t)single->copies * (sizeof(trireme_random) + single->state_size);
}
static inline const char* trireme_single_save_(void* batch, void* to) {
  const trireme_single_* single = (const trireme_single_*)batch;
  const size_t streams = single->copies * sizeof(trireme_random);
  memcpy(to, single->random, streams);
  memcpy((char*)to + streams, single->states, single->copies * single->state_size);
  return NULL;
}
static inline const char* trireme_single_load_(void* batch, const void* from, uint64_t bytes) {
  trireme_single_* single = (trireme_single_*)batch;
  const size_t streams = single->copies * sizeof(trireme_random);
  if (bytes != trireme_single_bytes_(batch)) return "the saved state has another size";
  memcpy(single->random, from, streams);
  memcpy(single->states, (const char*)from + streams, single->copies * single->state_size);
  return NULL;
}

#define TRIREME_SINGLE_ENV(id, State, name, help, options, option_count)                                \
  static const char* id##_create_(const trireme_value* values, uint32_t copies, void** batch) {         \
    trireme_spec spec;                                                                                  \
    const char* error;                                                                                  \
    memset(&spec, 0, sizeof spec);                                                                      \
    error = id##_describe(values, &spec);                                                               \
    return error != NULL ? error : trireme_single_create_(&spec, values, copies, sizeof(State), batch); \
  }                                                                                                     \
  static const char* id##_reset_(void* batch, uint32_t count, const uint32_t* copies,                   \
                                 const trireme_random* streams, const trireme_buffers* to) {            \
    trireme_single_* single = (trireme_single_*)batch;                                                  \
    uint32_t k;                                                                                         \
    for (k = 0; k < count; ++k) {                                                                       \
      const uint32_t i = copies[k];                                                                     \
      trireme_copy copy = trireme_copy_at_(&single->rows, i, &single->random[i], NULL, to);             \
      single->random[i] = streams[k];                                                                   \
      id##_reset((State*)single->states + i, &copy);                                                    \
      if (copy.error != NULL) return copy.error;                                                        \
    }                                                                                                   \
    return NULL;                                                                                        \
  }                                                                                                     \
  static const char* id##_step_(void* batch, const float* actions, const trireme_buffers* to) {         \
    trireme_single_* single = (trireme_single_*)batch;                                                  \
    const uint32_t copies = (uint32_t)single->copies;                                                   \
    uint32_t i;                                                                                         \
    for (i = 0; i < copies; ++i) {                                                                      \
      trireme_copy copy = trireme_copy_at_(&single->rows, i, &single->random[i], actions, to);          \
      id##_step((State*)single->states + i, &copy);                                                     \
      trireme_put_step_(&copy, i, to);                                                                  \
      if (copy.error != NULL) return copy.error;                                                        \
    }                                                                                                   \
    return NULL;                                                                                        \
  }                                                                                                     \
  static const trireme_env id = {name,                                                                  \
                                 help,                                                                  \
                                 options,                                                               \
                                 option_count,                                                          \
                                 0,                                                                     \
                                 id##_describe,                                                         \
                                 id##_create_,                                                          \
                                 trireme_single_destroy_,                                               \
                                 id##_reset_,                                                           \
                                 id##_step_,                                                            \
                                 trireme_single_bytes_,                                                 \
                                 trireme_single_save_,                                                  \
                                 trireme_single_load_};

#ifdef __cplusplus
} /* extern "C" */

/* ---- One copy at a time, as a class of C++ -----------------------------------------------------------------------
 *
 *   struct Walk {
 *     static void Describe(const trireme_value* options, trireme_spec& spec);
 *     explicit Walk(const trireme_value* options);
 *     void Reset(trireme_copy& copy);
 *     void Step(trireme_copy& copy);
 *   };
 *   static const trireme_env walk = trireme_class_env<Walk>("Walk-v0", "walk to place 10");
 *   TRIREME_PLUGIN(&walk)
 *
 * It may hold whatever it likes, and throw what derives from std::exception. It has snapshots if its bytes are all of it
 * (std::is_trivially_copyable). A class that the compiler can copy like that may still hold a pointer, which ends a resumed
 * run with a crash: hold none, but to the options and their texts, or say so in Describe: spec.snapshots = 0. */
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

template <class Env>
struct trireme_class_batch_ {
  trireme_rows_ rows;
  std::vector<trireme_random> random;
  std::vector<std::unique_ptr<Env>> envs;

  static trireme_class_batch_& Of(void* batch) { return *static_cast<trireme_class_batch_*>(batch); }

  /* What `run` throws, as a text that the thread keeps for a while. */
  template <class Run>
  static const char* Catch(const Run& run) {
    static thread_local std::string text;
    try {
      const char* error = run();
      if (error == nullptr) return nullptr;
      text = error;
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
      text = "something was thrown that is no std::exception";
    }
    return text.c_str();
  }

  static const char* Describe(const trireme_value* options, trireme_spec* spec) {
    return Catch([&]() -> const char* {
      Env::Describe(options, *spec);
      return nullptr;
    });
  }
  static const char* Create(const trireme_value* options, uint32_t copies, void** batch) {
    return Catch([&]() -> const char* {
      trireme_spec spec = trireme_spec();
      Env::Describe(options, spec);
      std::unique_ptr<trireme_class_batch_> made(new trireme_class_batch_());
      made->rows = trireme_rows_of_(&spec, options);
      made->random.resize(copies);
      for (uint32_t i = 0; i < copies; ++i) made->envs.emplace_back(new Env(options));
      *batch = made.release();
      return nullptr;
    });
  }
  static void Destroy(void* batch) { delete static_cast<trireme_class_batch_*>(batch); }

  static const char* Reset(void* batch, uint32_t count, const uint32_t* copies, const trireme_random* streams,
                           const trireme_buffers* to) {
    return Catch([&]() -> const char* {
      trireme_class_batch_& self = Of(batch);
      for (uint32_t k = 0; k < count; ++k) {
        const uint32_t i = copies[k];
        self.random[i] = streams[k];
        trireme_copy copy = trireme_copy_at_(&self.rows, i, &self.random[i], nullptr, to);
        self.envs[i]->Reset(copy);
        if (copy.error != nullptr) return copy.error;
      }
      return nullptr;
    });
  }
  static const char* Step(void* batch, const float* actions, const trireme_buffers* to) {
    return Catch([&]() -> const char* {
      trireme_class_batch_& self = Of(batch);
      for (uint32_t i = 0; i < self.envs.size(); ++i) {
        trireme_copy copy = trireme_copy_at_(&self.rows, i, &self.random[i], actions, to);
        self.envs[i]->Step(copy);
        trireme_put_step_(&copy, i, to);
        if (copy.error != nullptr) return copy.error;
      }
      return nullptr;
    });
  }

  static uint64_t Bytes(void* batch) {
    return static_cast<uint64_t>(Of(batch).envs.size()) * (sizeof(trireme_random) + sizeof(Env));
  }
  static const char* Save(void* batch, void* to) {
    const trireme_class_batch_& self = Of(batch);
    char* at = static_cast<char*>(to);
    for (size_t i = 0; i < self.envs.size(); ++i) {
      memcpy(at, &self.random[i], sizeof(trireme_random));
      memcpy(at + sizeof(trireme_random), static_cast<const void*>(self.envs[i].get()), sizeof(Env));
      at += sizeof(trireme_random) + sizeof(Env);
    }
    return nullptr;
  }
  static const char* Load(void* batch, const void* from, uint64_t bytes) {
    trireme_class_batch_& self = Of(batch);
    const char* at = static_cast<const char*>(from);
    if (bytes != Bytes(batch)) return "the saved state has another size";
    for (size_t i = 0; i < self.envs.size(); ++i) {
      memcpy(&self.random[i], at, sizeof(trireme_random));
      memcpy(static_cast<void*>(self.envs[i].get()), at + sizeof(trireme_random), sizeof(Env));
      at += sizeof(trireme_random) + sizeof(Env);
    }
    return nullptr;
  }
};

template <class Env>
trireme_env trireme_class_env(const char* name, const char* help, const trireme_option* options = nullptr,
                              uint32_t option_count = 0) {
  typedef trireme_class_batch_<Env> Batch;
  const bool plain = std::is_trivially_copyable<Env>::value;
  return {name,
          help,
          options,
          option_count,
          0,
          Batch::Describe,
          Batch::Create,
          Batch::Destroy,
          Batch::Reset,
          Batch::Step,
          plain ? Batch::Bytes : nullptr,
          plain ? Batch::Save : nullptr,
          plain ? Batch::Load : nullptr};
}
#endif /* __cplusplus */

#endif /* TRIREME_ENV_PLUGIN_H */
