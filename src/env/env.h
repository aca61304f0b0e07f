// Environments: what one is, and how many copies are stepped at once.
//
// An EnvBatch holds `size` independent copies of one environment and steps them together. Every copy resets
// itself when its episode ends: the observation after a step that ended an episode is the first of the next
// one, and the last observation of the ended episode is in final_obs(), for bootstrapping. `terminated` (the
// task says so) and `truncated` (it was cut off: by the time limit, or because the copy could not go on) are never
// merged.
//
// Randomness: the initial state of episode e of copy i is a pure function of (seed, purpose, first_id + i,
// e), unless EnvFacts says that the environment is not reproducible.
//
// Layouts: one row for each copy. A row of observations has spec().obs.bytes() bytes, floats or bytes; of
// actions spec().action.size() floats; of masks spec().action.choices() bytes.
//
// Thread safety: none within a batch; different batches may be used from different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/state.h"
#include "trireme/env/spec.h"
#include "trireme/picture/picture.h"

namespace trireme {

// An episode that ended in the last step.
struct EpisodeEnd {
  int env = 0;  // index within the batch
  int length = 0;
  double episode_return = 0;
  bool terminated = false;
};

// A batch that can be saved and loaded exactly.
class EnvSnapshots {
 public:
  // Everything needed to continue exactly: state, clocks, returns so far, episode numbers, seed.
  virtual void Save(StateWriter& out, const std::string& scope) const = 0;
  // Requires a snapshot of the same environment and size; throws Error otherwise. Restores obs() and masks()
  // as well.
  virtual void Load(const StateReader& in, const std::string& scope) = 0;

 protected:
  ~EnvSnapshots() = default;
};

// What a batch looks like to people. Nothing that is drawn changes what is stepped.
class EnvPictures {
 public:
  // How many pictures, one for each step, are shown in a second.
  virtual double per_second() const = 0;
  // Copy `env` as the last Reset or Step has left it; where that step ended its episode, at the end of that one, not
  // at the start of the next. Pictures of a batch have one size. Throws Error.
  virtual void Draw(int env, Picture& out) = 0;

 protected:
  ~EnvPictures() = default;
};

class EnvBatch {
 public:
  virtual ~EnvBatch() = default;

  virtual const EnvSpec& spec() const = 0;
  virtual int size() const = 0;

  // Starts episode 0 of every copy. Copies are numbered first_id, first_id + 1, ... in the whole run.
  virtual void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) = 0;

  // A step of every copy, begun and ended apart, so that one batch can be on its way while actions are chosen
  // for another. actions: [size, action_size], free to change when StepBegin returns. StepBegin and StepEnd
  // take turns, nothing else is called between them but the destructor, and the views are of the new step when
  // StepEnd returns. Environments that run in this thread do their work in StepBegin; others need not wait until
  // StepEnd, and say so (EnvFacts::steps_elsewhere).
  // Actions outside the bounds are treated as Gymnasium treats them (clipped where it clips); a choice that
  // masks() forbids may do anything but harm. Allocates nothing.
  virtual void StepBegin(std::span<const float> actions) = 0;
  virtual void StepEnd() = 0;
  void Step(std::span<const float> actions) {
    StepBegin(actions);
    StepEnd();
  }

  // Views of the last Reset or Step; valid until the next.
  virtual std::span<const std::byte> obs() const = 0;        // [size, spec().obs]
  virtual std::span<const std::byte> final_obs() const = 0;  // [size, spec().obs], meaningful where done
  // 1: allowed, 0: not; for each choice, of all parts one after the other. At least one of each part is
  // allowed. Those that belong to obs() and to final_obs(); empty unless spec().masks.
  virtual std::span<const std::uint8_t> masks() const = 0;        // [size, choices]
  virtual std::span<const std::uint8_t> final_masks() const = 0;  // [size, choices], meaningful where done
  virtual std::span<const float> rewards() const = 0;             // [size]
  virtual std::span<const std::uint8_t> terminated() const = 0;   // [size], 0 or 1
  virtual std::span<const std::uint8_t> truncated() const = 0;    // [size], 0 or 1; never both
  // Episodes that ended in the last step, in the order of their copies: `env` ascends, each appears once.
  virtual std::span<const EpisodeEnd> finished() const = 0;

  // Null unless EnvFacts::snapshots; belongs to the batch.
  virtual EnvSnapshots* snapshots() = 0;
  // Null unless the batch was made by EnvEntry::make_drawn; belongs to the batch.
  virtual EnvPictures* pictures() { return nullptr; }
};

// What can be relied on.
struct EnvFacts {
  bool snapshots = false;     // batches can be saved and loaded exactly
  bool reproducible = false;  // the same seed and actions give the same bits, however copies are batched
  // Steps are on their way from StepBegin to StepEnd: worth choosing actions for other batches in between.
  bool steps_elsewhere = false;
};

// What went wrong in environments while the run went on, since this process began.
struct EnvFailures {
  std::int64_t count = 0;    // copies or processes that were made anew
  std::string last = {};     // why, the last time
  double last_s = 0;         // when that was: seconds since 1970
  std::string warning = {};  // the first rule that was broken without harm
};

// The processes that step an environment, where there are any. May be used from several threads at once.
class EnvProcesses {
 public:
  virtual ~EnvProcesses() = default;
  virtual EnvFailures failures() const = 0;
  // Processor time that they have taken, in seconds: all of them, also those that have ended.
  virtual double cpu_s() const = 0;
  // What they print goes to the end of this file, also what they have printed before.
  virtual void LogTo(const std::filesystem::path& path) = 0;
  // How the run says that it was asked to end; null: it cannot. From then on whoever waits for a process that does not
  // go on gives it up after some seconds, whatever its time limit, so that the run does end. It is called from
  // several threads at once, and no more once another was set.
  virtual void SetStop(std::function<bool()> stop) = 0;
};

// Sets it while it lives; nothing where there are no processes.
class EnvStopScope {
 public:
  EnvStopScope(std::shared_ptr<EnvProcesses> processes, std::function<bool()> stop)
      : processes_(std::move(processes)) {
    if (processes_ != nullptr) processes_->SetStop(std::move(stop));
  }
  ~EnvStopScope() {
    if (processes_ != nullptr) processes_->SetStop(nullptr);
  }
  EnvStopScope(const EnvStopScope&) = delete;
  EnvStopScope& operator=(const EnvStopScope&) = delete;

 private:
  const std::shared_ptr<EnvProcesses> processes_;
};

class EnvOptions;

// An environment with certain options; those of the rows of the table are the defaults. What `make` has captured
// lives as long as a copy of the entry does; a batch that needs it for longer holds it too.
struct EnvEntry {
  EnvSpec spec;
  EnvFacts facts = {};
  std::function<std::unique_ptr<EnvBatch>(int size)> make;
  // Batches that have pictures() and are stepped like the others, if not as fast; null where there are none.
  std::function<std::unique_ptr<EnvBatch>(int size)> make_drawn = nullptr;
  // Its options as they are here; null where it has none.
  std::function<std::unique_ptr<EnvOptions>()> options = nullptr;
  std::shared_ptr<EnvProcesses> processes = nullptr;  // null where it is stepped by this one
};

}  // namespace trireme
