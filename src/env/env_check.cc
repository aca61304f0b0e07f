#include "trireme/env/env_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/base/state.h"
#include "trireme/env/checked_batch.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

template <class... Args>
void Require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// The first copy that two batches show differently, if any.
void RequireSame(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                 int step, const char* what) {
  if (a == b) return;
  const std::size_t copy = std::ranges::mismatch(a, b).in1 - a.begin();
  Fail("{}: in step {} copy {} differs", what, step, copy);
}

bool Refuses(const EnvEntry& env, int size, const StateReader& saved, const std::string& scope) {
  const auto batch = MakeReset(env, size);
  try {
    batch->snapshots()->Load(saved, scope);
  } catch (const Error&) {
    return true;
  }
  return false;
}

void RequireFinite(const EnvBatch& batch, std::span<const std::byte> rows, int i, int step) {
  const std::vector<float> row = ObsRow(batch, rows, i);
  const auto bad = std::ranges::find_if(row, [](float value) { return !std::isfinite(value); });
  Require(bad == row.end(), "step {}: number {} of the observation of copy {} is not finite", step,
          bad - row.begin(), i);
}

// Each part of an action has a choice, for every copy.
void RequireAChoice(const EnvSpec& spec, std::span<const std::uint8_t> masks, int i, int step) {
  const std::uint8_t* mask = masks.data() + static_cast<std::ptrdiff_t>(i) * spec.action.choices();
  for (const int choices : spec.action.parts) {
    const auto allowed = std::count(mask, mask + choices, 1);
    Require(allowed > 0, "step {}: the mask of copy {} allows nothing", step, i);
    Require(allowed + std::count(mask, mask + choices, 0) == choices,
            "step {}: the mask of copy {} is not made of 0 and 1", step, i);
    mask += choices;
  }
}

// What is known of the episodes under way.
struct Clock {
  int length = 0;
  double sum = 0;
};

// Copy i after a step; true if its episode ended, as `end` says.
bool CheckCopy(const EnvBatch& batch, int i, int step, Clock& clock, std::size_t& ended) {
  const EnvSpec& spec = batch.spec();
  ++clock.length;
  clock.sum += batch.rewards()[i];
  Require(std::isfinite(batch.rewards()[i]), "step {}: the reward of copy {} is not finite", step, i);
  RequireFinite(batch, batch.obs(), i, step);
  const bool terminated = batch.terminated()[i], truncated = batch.truncated()[i];
  Require(!(terminated && truncated), "step {}: copy {} is both terminated and truncated", step, i);
  Require(terminated || truncated || clock.length != spec.max_episode_steps,
          "step {}: copy {} goes on beyond its time limit of {} steps", step, i, spec.max_episode_steps);
  if (!terminated && !truncated) return false;
  RequireFinite(batch, batch.final_obs(), i, step);
  Require(ended < batch.finished().size(), "step {}: the end of copy {} is not among finished()", step, i);
  const EpisodeEnd& end = batch.finished()[ended++];
  Require(end.env == i, "step {}: finished() is not in the order of the copies", step);
  Require(end.length == clock.length, "step {}: copy {} says that its episode had {} steps, and it had {}",
          step, i, end.length, clock.length);
  Require(end.terminated == terminated, "step {}: copy {} is listed as {} and its flags say otherwise", step,
          i, end.terminated ? "terminated" : "truncated");
  Require(std::abs(end.episode_return - clock.sum) <= 1e-6 * (1 + std::abs(clock.sum)),
          "step {}: copy {} says that its return was {}, and its rewards were {}", step, i,
          end.episode_return, clock.sum);
  clock = {};
  return true;
}

// The bounds may be infinite.
float RandomBetween(float low, float high, RandomStream& random) {
  const double at = random.NextUniform();
  if (std::isfinite(low) && std::isfinite(high)) return static_cast<float>(low + (double{high} - low) * at);
  const double far = 10 * at;
  return static_cast<float>(std::isfinite(low) ? low + far : std::isfinite(high) ? high - far : far - 5);
}

}  // namespace

void RandomAction(const ActionSpace& space, std::span<const std::uint8_t> mask, std::uint32_t id,
                  std::uint64_t step, float* action) {
  RandomStream random(7, Purpose::kAction, id, step);
  if (space.box()) {
    for (int k = 0; k < space.size(); ++k) action[k] = RandomBetween(space.low[k], space.high[k], random);
    return;
  }
  int first = 0;  // of the part, among all choices
  for (int part = 0; part < space.size(); ++part) {
    const int choices = space.parts[part];
    int choice = static_cast<int>(random.NextBelow(static_cast<std::uint32_t>(choices)));
    for (int tried = 0; !mask.empty() && mask[first + choice] == 0 && tried < choices; ++tried) {
      choice = (choice + 1) % choices;
    }
    action[part] = static_cast<float>(choice);
    first += choices;
  }
}

std::vector<float> RandomActions(const EnvBatch& batch, std::uint32_t first_id, std::uint64_t step) {
  const ActionSpace& space = batch.spec().action;
  std::vector<float> actions(static_cast<std::size_t>(batch.size()) * space.size());
  for (int i = 0; i < batch.size(); ++i) {
    const auto mask = batch.spec().masks ? batch.masks().subspan(i * space.choices(), space.choices())
                                         : std::span<const std::uint8_t>();
    RandomAction(space, mask, first_id + static_cast<std::uint32_t>(i), step, &actions[i * space.size()]);
  }
  return actions;
}

void StepRandomly(EnvBatch& batch, std::uint32_t first_id, std::uint64_t step) {
  batch.Step(RandomActions(batch, first_id, step));
}

std::vector<float> ObsRow(const EnvBatch& batch, std::span<const std::byte> rows, int i) {
  const ObsSpec& obs = batch.spec().obs;
  std::vector<float> row(static_cast<std::size_t>(obs.size()));
  ObsToFloat(obs, rows.data() + i * obs.bytes(), 1, row.data());
  return row;
}

std::vector<double> Seen(const EnvBatch& batch, int i) {
  std::vector<double> seen = {batch.rewards()[i], double(batch.terminated()[i]),
                              double(batch.truncated()[i])};
  const bool done = batch.terminated()[i] || batch.truncated()[i];
  const auto add = [&](std::span<const std::byte> obs, std::span<const std::uint8_t> masks) {
    for (const float value : ObsRow(batch, obs, i)) seen.push_back(value);
    const std::size_t choices = masks.size() / static_cast<std::size_t>(batch.size());
    for (const std::uint8_t allowed : masks.subspan(i * choices, choices)) seen.push_back(allowed);
  };
  add(batch.obs(), batch.masks());
  if (done) add(batch.final_obs(), batch.final_masks());
  for (const EpisodeEnd& end : batch.finished()) {
    if (end.env != i) continue;
    seen.insert(seen.end(), {double(end.length), end.episode_return, double(end.terminated)});
  }
  return seen;
}

std::vector<std::vector<double>> SeenByAll(const EnvBatch& batch) {
  std::vector<std::vector<double>> seen;
  seen.reserve(batch.size());
  for (int i = 0; i < batch.size(); ++i) seen.push_back(Seen(batch, i));
  return seen;
}

std::unique_ptr<EnvBatch> MakeReset(const EnvEntry& env, int size, std::uint64_t seed,
                                    std::uint32_t first_id) {
  return MakeBatch(env, size, seed, Purpose::kEnvReset, first_id);
}

int LongRun(const EnvEntry& env) {
  const int limit = env.spec.max_episode_steps;
  return (limit == 0 ? 2000 : std::min(limit, 2000)) + 60;
}

void CheckSpecAndViews(const EnvEntry& env) {
  CheckSpec(env.spec);
  Require(!env.spec.help.empty(), "it has no help, one line that says what it is");
  const auto batch = MakeReset(env, 3);
  Require(batch->spec().name == env.spec.name, "a batch is called {}", batch->spec().name);
  Require(batch->spec().max_episode_steps == env.spec.max_episode_steps,
          "a batch has a time limit of {} steps", batch->spec().max_episode_steps);
  Require(batch->finished().empty(), "episodes have ended before the first step");
  Require((batch->snapshots() != nullptr) == env.facts.snapshots,
          "facts.snapshots is {}, and a batch says otherwise", env.facts.snapshots);
}

void CheckOptions(const EnvEntry& env) {
  if (!env.options) return;
  const auto options = env.options();
  ConfigFields fields;
  fields.Add(*options);
  Require(!fields.fields().empty(), "it has options, and none of them");
  fields.ApplyToml(fields.ToToml(), "its own options");
  if (options->takes_args()) return;  // which it may need
  const EnvEntry again = options->Entry({});
  Require(again.spec.name == env.spec.name && again.spec.obs == env.spec.obs &&
              again.spec.max_episode_steps == env.spec.max_episode_steps,
          "with its own options it is another");
  Require(again.make(2)->spec().name == env.spec.name, "a batch with its own options has another name");
}

void CheckEpisodes(const EnvEntry& env, int size) {
  const auto batch = MakeReset(env, size);
  std::vector<Clock> clocks(static_cast<std::size_t>(size));
  int episodes = 0;
  for (int step = 1; step <= LongRun(env); ++step) {
    for (int i = 0; env.spec.masks && i < size; ++i) RequireAChoice(env.spec, batch->masks(), i, step - 1);
    StepRandomly(*batch, 0, static_cast<std::uint64_t>(step));
    std::size_t ended = 0;
    for (int i = 0; i < size; ++i) episodes += CheckCopy(*batch, i, step, clocks[i], ended) ? 1 : 0;
    Require(ended == batch->finished().size(), "step {}: {} episodes have ended and {} are listed", step,
            ended, batch->finished().size());
  }
  if (env.spec.max_episode_steps > 0 && LongRun(env) > env.spec.max_episode_steps) {
    Require(episodes >= size, "some copy never ended an episode");
  }
}

void CheckReproducible(const EnvEntry& env) {
  if (!env.facts.reproducible) return;
  constexpr const char* kWhat = "two batches with the same seed and actions";
  const auto a = MakeReset(env, 8), b = MakeReset(env, 8);
  StepRandomly(*b, 0, 0);
  b->Reset(1, Purpose::kEnvReset, 0);  // whatever came before
  RequireSame(SeenByAll(*a), SeenByAll(*b), 0, kWhat);
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*a, 0, t);
    StepRandomly(*b, 0, t);
    RequireSame(SeenByAll(*a), SeenByAll(*b), t + 1, kWhat);
  }
}

void CheckBatching(const EnvEntry& env) {
  if (!env.facts.reproducible) return;
  const auto whole = MakeReset(env, 16, 1, 100);
  std::vector<std::unique_ptr<EnvBatch>> parts;
  std::uint32_t first = 100;
  for (const int size : {8, 5, 1, 2}) {
    parts.push_back(MakeReset(env, size, 1, first));
    first += static_cast<std::uint32_t>(size);
  }
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*whole, 100, t);
    std::vector<std::vector<double>> seen;
    std::uint32_t id = 100;
    for (const auto& part : parts) {
      StepRandomly(*part, id, t);
      id += static_cast<std::uint32_t>(part->size());
      for (auto& one : SeenByAll(*part)) seen.push_back(std::move(one));
    }
    RequireSame(SeenByAll(*whole), seen, t + 1, "the same copies in one batch and in several");
  }
}

void CheckStepsApart(const EnvEntry& env) {
  const auto a = MakeReset(env, 5), b = MakeReset(env, 3, 1, 5);
  const auto plain_a = MakeReset(env, 5), plain_b = MakeReset(env, 3, 1, 5);
  for (int t = 0; t < std::min(LongRun(env), 300); ++t) {
    std::vector<float> actions_a = RandomActions(*a, 0, t), actions_b = RandomActions(*b, 5, t);
    if (env.facts.reproducible) {
      plain_a->Step(actions_a);
      plain_b->Step(actions_b);
    }
    a->StepBegin(actions_a);
    std::ranges::fill(actions_a, std::numeric_limits<float>::quiet_NaN());
    b->StepBegin(actions_b);
    std::ranges::fill(actions_b, std::numeric_limits<float>::quiet_NaN());
    a->StepEnd();
    b->StepEnd();
    for (const auto& batch : {a.get(), b.get()}) {
      for (const float reward : batch->rewards()) {
        Require(std::isfinite(reward), "step {}: a reward is not finite when steps of two batches overlap",
                t + 1);
      }
    }
    if (!env.facts.reproducible) continue;
    constexpr const char* kWhat = "steps of two batches that overlap, and one after the other";
    RequireSame(SeenByAll(*a), SeenByAll(*plain_a), t + 1, kWhat);
    RequireSame(SeenByAll(*b), SeenByAll(*plain_b), t + 1, kWhat);
  }
}

void CheckSnapshots(const EnvEntry& env) {
  if (!env.facts.snapshots) return;
  constexpr const char* kScope = "shard/3/env";
  constexpr const char* kWhat = "a batch and what was loaded from its snapshot";
  const auto original = MakeReset(env, 11, 5, 30), restored = MakeReset(env, 11, 6, 0);
  for (int t = 0; t < 37; ++t) StepRandomly(*original, 30, t);
  StateWriter out;
  original->snapshots()->Save(out, kScope);
  const StateReader saved(out.Encode());
  restored->snapshots()->Load(saved, kScope);
  Require(std::ranges::equal(original->obs(), restored->obs()) &&
              std::ranges::equal(original->masks(), restored->masks()),
          "{}: observations or masks differ", kWhat);
  for (int t = 37; t < 37 + LongRun(env); ++t) {
    StepRandomly(*original, 30, t);
    StepRandomly(*restored, 30, t);
    RequireSame(SeenByAll(*original), SeenByAll(*restored), t + 1, kWhat);
  }
  Require(Refuses(env, 12, saved, kScope), "a snapshot of 11 copies was loaded into 12");
  Require(Refuses(env, 11, saved, "elsewhere"), "a snapshot was loaded that is not there");
}

void CheckPictures(const EnvEntry& env) {
  Require(env.make(2)->pictures() == nullptr, "a batch has pictures that was not made to be drawn");
  if (!env.make_drawn) return;
  const auto drawn = MakeDrawnBatch(env, 2, 1, Purpose::kEnvReset, 0), plain = MakeReset(env, 2);
  EnvPictures& pictures = *drawn->pictures();
  int looked = 0;  // drawing may take long
  Picture first, picture, again;
  pictures.Draw(0, first);
  CheckPicture(first, env.spec.name.c_str());
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*drawn, 0, t);
    if (env.facts.reproducible) {
      StepRandomly(*plain, 0, t);
      RequireSame(SeenByAll(*drawn), SeenByAll(*plain), t + 1, "a batch that is drawn and one that is not");
    }
    if (looked >= 20 || (t % 50 != 0 && drawn->finished().empty())) continue;
    ++looked;
    for (int i = 0; i < 2; ++i) {
      pictures.Draw(i, picture);
      CheckPicture(picture, env.spec.name.c_str());
      Require(picture.width == first.width && picture.height == first.height,
              "step {}: a picture has another size", t + 1);
      pictures.Draw(i, again);
      Require(picture == again, "step {}: two pictures of copy {} differ", t + 1, i);
    }
  }
}

std::span<const EnvCheck> EnvChecks() {
  static constexpr EnvCheck kChecks[] = {
      {"sizes and names are what it says", CheckSpecAndViews},
      {"options can be read back", CheckOptions},
      {"episodes end and restart by the book, numbers are finite",
       [](const EnvEntry& env) { CheckEpisodes(env); }},
      {"the same seed gives the same bits", CheckReproducible, &EnvFacts::reproducible},
      {"and so it does however copies are batched", CheckBatching, &EnvFacts::reproducible},
      {"steps of batches can overlap", CheckStepsApart},
      {"a snapshot goes on with the same bits", CheckSnapshots, &EnvFacts::snapshots},
      {"pictures, where there are any, change nothing", CheckPictures},
  };
  return kChecks;
}

}  // namespace trireme
