// A study: all trials of a search in a SQLite file, in the tables that Optuna 4 and 5 keep, so that `optuna.load_study` and its
// dashboard open it (docs/tuning.md has the layout).
//
// Invariants, whatever process is killed at whatever moment:
//   1. Numbers of trials are 0, 1, 2, ... without gaps; a number is given once.
//   2. A trial that is RUNNING belongs to a process that lives, or is given to the next one that asks (Claim), with the same
//      values; what it had reported is forgotten.
//   3. A trial ends once. A process that has lost its trial to another, because it was silent for too long, cannot end it.
//
// Whether a process lives is known at once on the same host, by its id and the time it was started; of others by their
// heartbeat, which comes every kBeat seconds and is waited for kSilence.
//
// Thread safety: none; any number of processes may have the same file open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/tune/sampler.h"
#include "trireme/tune/space.h"
#include "trireme/tune/sqlite.h"

namespace trireme {

// What must agree for two searches to be one study: (what, its value), for people too.
using StudyProblem = std::vector<std::pair<std::string, std::string>>;

enum class TrialState { kRunning, kWaiting, kComplete, kPruned, kFail };

// What a new trial tries, and the trial from whose state it goes on; -1: it begins with nothing.
struct Proposal {
  Point point = {};
  int parent = -1;
};

struct StudyTrial {
  std::int64_t id = 0;
  int number = 0, parent = -1;
  TrialState state = TrialState::kRunning;
  Point point = {};
  std::optional<double> value = {};
  std::map<std::int64_t, double> reports = {};    // by step
  std::map<std::string, std::string> notes = {};  // user attributes, JSON

  bool ended() const { return state != TrialState::kRunning && state != TrialState::kWaiting; }
};

class Study {
 public:
  // Opens the study in the file, or makes one of this name. Throws Error: a file of another problem or another program, damaged
  // files, no room.
  Study(const std::filesystem::path& file, const std::string& name, StudyProblem problem, const Space& space,
        bool maximise);

  // All trials, by number. Good until the next call of anything. Throws Error.
  const std::vector<StudyTrial>& Trials();
  // The same for samplers: less is better.
  std::vector<PastTrial> History();

  struct Claimed {
    std::int64_t id = 0;
    int number = 0, parent = -1;
    Point point = {};
    bool again = false;  // it was begun before
  };
  // A trial that is waiting, or whose process is gone; otherwise, where there are fewer than `most`, a new one with what
  // `propose` gives for its number. Nothing: there is nothing left to begin. Throws Error.
  std::optional<Claimed> Claim(int most, const std::function<std::optional<Proposal>(int number)>& propose);

  void Report(std::int64_t id, std::int64_t step, double value);
  void Beat(std::span<const std::int64_t> ids);
  // False: the trial has been given to another process.
  bool End(std::int64_t id, TrialState state, std::optional<double> value,
           const std::map<std::string, std::string>& notes);
  void Note(std::int64_t id, const std::string& key, const std::string& json);
  // Puts trials back that this process will not go on with: they wait for whoever comes.
  void GiveBack(std::span<const std::int64_t> ids);

  const std::filesystem::path& file() const { return database_.path(); }
  bool maximise() const { return maximise_; }

  static constexpr double kBeat = 5, kSilence = 60;  // seconds

 private:
  void MakeTables();
  void FindStudy(const std::string& name, const StudyProblem& problem);
  std::optional<std::int64_t> Abandoned();
  bool IsGone(const std::string& owner, double silent_s) const;
  void Own(std::int64_t id);

  Database database_;
  const Space& space_;
  bool maximise_;
  std::int64_t study_ = 0;
  std::string owner_;  // JSON: who this process is
  std::vector<StudyTrial> trials_;
  std::vector<std::string> distributions_;  // of the parameters
};

// As JSON, for trial_params.
std::string OptunaDistribution(const Parameter& parameter);

}  // namespace trireme
