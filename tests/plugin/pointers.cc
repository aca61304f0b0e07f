// A plug-in for tests: classes that are plain bytes, so that they have snapshots, and keep pointers.
#include "trireme/env_plugin.h"

namespace {

const trireme_option options[] = {{"pay", TRIREME_TEXT, 0, "abcde", 0, 0, "letters a to z: rewards"},
                                  {"end", TRIREME_INT, 12, nullptr, 2, 50, "steps of an episode"}};

struct Counter {
  int step = 0;
  double place = 0;

  static void Describe(const trireme_value*, trireme_spec& spec) {
    trireme_obs_floats(&spec, 2);
    trireme_discrete(&spec, 2);
    spec.max_episode_steps = 50;
  }
  void Begin(trireme_copy& copy) {
    step = 0;
    place = trireme_uniform(copy.random);
    Show(copy);
  }
  void Go(trireme_copy& copy, const char* pay, std::int64_t end) {
    ++step;
    place += copy.action[0] == 1 ? 0.1 : -0.1;
    copy.reward = static_cast<float>(pay[step % static_cast<int>(strlen(pay))] - 'a') / 26;
    copy.terminated = step >= end;
    Show(copy);
  }
  void Show(trireme_copy& copy) const {
    copy.obs[0] = static_cast<float>(place);
    copy.obs[1] = static_cast<float>(step) / 50;
  }
};

// The options, as they are given.
struct Values : Counter {
  const trireme_value* values;
  explicit Values(const trireme_value* given) : values(given) {}
  void Reset(trireme_copy& copy) { Begin(copy); }
  void Step(trireme_copy& copy) { Go(copy, values[0].text, values[1].whole); }
};

// One text of them, and not from its beginning.
struct Text : Counter {
  const char* pay;
  std::int64_t end;
  explicit Text(const trireme_value* given) : pay(given[0].text + 1), end(given[1].whole) {}
  void Reset(trireme_copy& copy) { Begin(copy); }
  void Step(trireme_copy& copy) { Go(copy, pay, end); }
};

// Something else: Trireme cannot know where it is in another process.
struct Foreign : Counter {
  const char* pay;
  explicit Foreign(const trireme_value*) : pay("xyz") {}
  void Reset(trireme_copy& copy) { Begin(copy); }
  void Step(trireme_copy& copy) { Go(copy, pay, 12); }
};
struct Honest : Foreign {
  using Foreign::Foreign;
  static void Describe(const trireme_value* given, trireme_spec& spec) {
    Counter::Describe(given, spec);
    spec.snapshots = 0;
  }
};

const trireme_env values = trireme_class_env<Values>("Values-v0", "keeps its options", options, 2);
const trireme_env text = trireme_class_env<Text>("Text-v0", "keeps a text of its options", options, 2);
const trireme_env foreign = trireme_class_env<Foreign>("Foreign-v0", "keeps a pointer to something else");
const trireme_env honest = trireme_class_env<Honest>("Honest-v0", "the same, and says so");

}  // namespace

TRIREME_PLUGIN(&values, &text, &foreign, &honest)
