#include "trireme/tune/study.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/tune/process_id.h"
#include "trireme/tune/study_tables.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kProblem = "trireme:problem";  // attribute of the study
constexpr const char* kOwner = "trireme:owner";      // attribute of a trial
constexpr const char* kParent = "trireme:parent";    // likewise

constexpr std::pair<TrialState, const char*> kStates[] = {{TrialState::kRunning, "RUNNING"},
                                                          {TrialState::kWaiting, "WAITING"},
                                                          {TrialState::kComplete, "COMPLETE"},
                                                          {TrialState::kPruned, "PRUNED"},
                                                          {TrialState::kFail, "FAIL"}};

const char* NameOf(TrialState state) {
  for (const auto& [known, name] : kStates) {
    if (known == state) return name;
  }
  return "FAIL";
}

TrialState StateOf(const std::string& text) {
  for (const auto& [state, name] : kStates) {
    if (text == name) return state;
  }
  return TrialState::kFail;
}

// Local time, as Python's datetime has it.
std::string Now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:06}", text, micros % 1'000'000);
}

// What SQLite cannot hold as a number has a type of its own.
std::pair<std::optional<double>, const char*> Stored(double value) {
  if (value == std::numeric_limits<double>::infinity()) return {std::nullopt, "INF_POS"};
  if (value == -std::numeric_limits<double>::infinity()) return {std::nullopt, "INF_NEG"};
  return {value, "FINITE"};
}

double Restored(const Statement& row, int value, int type) {
  const std::string text = row.Text(type);
  if (text == "INF_POS") return std::numeric_limits<double>::infinity();
  if (text == "INF_NEG") return -std::numeric_limits<double>::infinity();
  return row.IsNull(value) ? std::numeric_limits<double>::quiet_NaN() : row.Real(value);
}

}  // namespace

std::string OptunaDistribution(const Parameter& parameter) {
  if (parameter.categorical())
    return Json{{"name", "CategoricalDistribution"}, {"attributes", {{"choices", parameter.choices}}}}.dump();
  const bool log = parameter.scale == Search::Kind::kLog || parameter.scale == Search::Kind::kPowersOfTwo;
  if (parameter.whole) {
    const Json attributes = {{"log", log},
                             {"step", 1},
                             {"low", static_cast<std::int64_t>(parameter.low)},
                             {"high", static_cast<std::int64_t>(parameter.high)}};
    return Json{{"name", "IntDistribution"}, {"attributes", attributes}}.dump();
  }
  const Json attributes = {{"step", nullptr}, {"low", parameter.low}, {"high", parameter.high}, {"log", log}};
  return Json{{"name", "FloatDistribution"}, {"attributes", attributes}}.dump();
}

Study::Study(const std::filesystem::path& file, const std::string& name, StudyProblem problem,
             const Space& space, bool maximise)
    : database_(file), space_(space), maximise_(maximise), owner_(ProcessId::OfThis().ToJson()) {
  for (const Parameter& parameter : space.parameters())
    distributions_.push_back(OptunaDistribution(parameter));
  MakeTables();
  FindStudy(name, problem);
}

void Study::MakeTables() {
  database_.Write([&] {
    Statement tables(database_, "SELECT name FROM sqlite_master WHERE type = 'table'");
    bool any = false, studies = false, version = false;
    while (tables.Next()) {
      any = true;
      studies = studies || tables.Text(0) == "studies";
      version = version || tables.Text(0) == "alembic_version";
    }
    if (!any) {
      database_.Run(kStudyTables);
      Statement(database_, "INSERT INTO version_info VALUES (1, ?1, ?2)")
          .With(kOptunaSchema, kOptunaVersion)
          .Run();
      Statement(database_, "INSERT INTO alembic_version VALUES (?1)").With(kOptunaRevision).Run();
      return;
    }
    if (!studies || !version)
      Fail("{} is no study: it is a database of some other program. Name a new file with --study",
           file().string());
    Statement revision(database_, "SELECT version_num FROM alembic_version");
    const std::string found = revision.Next() ? revision.Text(0) : "none";
    if (found != kOptunaRevision)
      Fail("{} has the tables of another version of Optuna ({}, expected {}): name a new file with --study",
           file().string(), found, kOptunaRevision);
  });
}

void Study::FindStudy(const std::string& name, const StudyProblem& problem) {
  Json saved = Json::array();
  for (const auto& [what, value] : problem) saved.push_back({what, value});
  database_.Write([&] {
    Statement studies(database_, "SELECT study_id, study_name FROM studies ORDER BY study_id");
    if (!studies.Next()) {
      Statement(database_, "INSERT INTO studies (study_name) VALUES (?1)").With(name).Run();
      study_ = database_.LastId();
      Statement(database_, "INSERT INTO study_directions (direction, study_id, objective) VALUES (?1, ?2, 0)")
          .With(maximise_ ? "MAXIMIZE" : "MINIMIZE", study_)
          .Run();
      Statement(database_,
                "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (?1, ?2, ?3)")
          .With(study_, kProblem, saved.dump())
          .Run();
      return;
    }
    study_ = studies.Int(0);
    const std::string other = studies.Text(1);
    Statement attribute(database_,
                        "SELECT value_json FROM study_user_attributes WHERE study_id = ?1 AND key = ?2");
    attribute.With(study_, kProblem);
    if (!attribute.Next())
      Fail("{} holds the study '{}' of another program: name another file with --study", file().string(),
           other);
    const Json before = Json::parse(attribute.Text(0), nullptr, false);
    const auto value_of = [&](const std::string& what) {
      for (const Json& entry : before) {
        if (entry.is_array() && entry.size() == 2 && entry[0] == what && entry[1].is_string())
          return entry[1].get<std::string>();
      }
      return std::string("unknown");
    };
    for (const auto& [what, value] : problem) {
      if (value_of(what) == value) continue;
      const bool is_long = value.size() > 60;
      Fail("{} is a study of another problem: its {} is {}, not {}. Name another file with --study",
           file().string(), what, is_long ? "another one" : value_of(what), is_long ? "this one" : value);
    }
  });
}

const std::vector<StudyTrial>& Study::Trials() {
  // What has ended does not change, so it is read once.
  std::int64_t first = 0;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    if (trials_[i].ended()) continue;
    trials_.resize(i);
    break;
  }
  if (!trials_.empty()) first = trials_.back().id + 1;
  std::map<std::int64_t, std::size_t> index;
  Statement trials(database_,
                   "SELECT trial_id, number, state FROM trials WHERE study_id = ?1 AND trial_id >= ?2 "
                   "ORDER BY trial_id");
  trials.With(study_, first);
  while (trials.Next()) {
    const auto number = static_cast<int>(trials_.size());
    if (trials.IsNull(1) || trials.Int(1) != number)
      Fail("{} is damaged: trial {} has the number {}", file().string(), number, trials.Text(1));
    StudyTrial& trial = trials_.emplace_back();
    trial.id = trials.Int(0);
    trial.number = number;
    trial.state = StateOf(trials.Text(2));
    trial.point.assign(space_.size(), std::numeric_limits<double>::quiet_NaN());
    index[trial.id] = trials_.size() - 1;
  }
  const auto each = [&](const char* columns, const char* table, const auto& take) {
    Statement rows(database_,
                   fmt::format("SELECT trial_id, {} FROM {} WHERE trial_id >= ?1", columns, table));
    rows.With(first);
    while (rows.Next()) {
      const auto found = index.find(rows.Int(0));
      if (found != index.end()) take(trials_[found->second], rows);
    }
  };
  each("param_name, param_value", "trial_params", [&](StudyTrial& trial, const Statement& row) {
    for (std::size_t i = 0; i < space_.size(); ++i) {
      const Parameter& parameter = space_.parameters()[i];
      if (parameter.name != row.Text(1)) continue;
      const double value = row.Real(2);
      const bool fits = parameter.categorical()
                            ? value >= 0 && value < parameter.Levels() && value == std::floor(value)
                            : value >= parameter.low && value <= parameter.high;
      if (!fits)
        Fail("{} is damaged: trial {} has {} = {}", file().string(), trial.number, parameter.name, value);
      trial.point[i] = value;
    }
  });
  each("value, value_type", "trial_values",
       [&](StudyTrial& trial, const Statement& row) { trial.value = Restored(row, 1, 2); });
  each("step, intermediate_value, intermediate_value_type", "trial_intermediate_values",
       [&](StudyTrial& trial, const Statement& row) { trial.reports[row.Int(1)] = Restored(row, 2, 3); });
  each("key, value_json", "trial_system_attributes", [&](StudyTrial& trial, const Statement& row) {
    if (row.Text(1) != kParent) return;
    const Json parent = Json::parse(row.Text(2), nullptr, false);
    if (!parent.is_number_integer() || parent < 0 || parent >= trial.number)
      Fail("{} is damaged: trial {} goes on from {}", file().string(), trial.number, row.Text(2));
    trial.parent = parent;
  });
  each("key, value_json", "trial_user_attributes",
       [&](StudyTrial& trial, const Statement& row) { trial.notes[row.Text(1)] = row.Text(2); });
  return trials_;
}

std::vector<PastTrial> Study::History() {
  const double sign = maximise_ ? -1 : 1;
  std::vector<PastTrial> history;
  for (const StudyTrial& trial : Trials()) {
    PastTrial& past = history.emplace_back();
    past.point = trial.point;
    if (!trial.ended()) continue;
    if (trial.state == TrialState::kComplete && trial.value) {
      past.outcome = PastTrial::Outcome::kComplete;
      past.value = sign * *trial.value;
    } else if (trial.state == TrialState::kPruned && !trial.reports.empty()) {
      past.outcome = PastTrial::Outcome::kPruned;
      past.progress = static_cast<double>(trial.reports.rbegin()->first);
      past.value = -trial.reports.rbegin()->second;  // reports are returns
    } else {
      past.outcome = PastTrial::Outcome::kFailed;
    }
  }
  return history;
}

std::optional<Study::Claimed> Study::Claim(
    int most, const std::function<std::optional<Proposal>(int number)>& propose) {
  std::optional<Claimed> claimed;
  database_.Write([&] {
    if (const std::optional<std::int64_t> id = Abandoned()) {
      for (const char* table : {"trial_intermediate_values", "trial_values", "trial_user_attributes"})
        Statement(database_, fmt::format("DELETE FROM {} WHERE trial_id = ?1", table)).With(*id).Run();
      Statement(database_, "UPDATE trials SET state = 'RUNNING', datetime_start = ?2 WHERE trial_id = ?1")
          .With(*id, Now())
          .Run();
      Own(*id);
      for (const StudyTrial& trial : Trials()) {
        if (trial.id == *id) claimed = {trial.id, trial.number, trial.parent, trial.point, true};
      }
      return;
    }
    const auto number = static_cast<int>(Trials().size());
    if (number >= most) return;
    const std::optional<Proposal> proposal = propose(number);
    if (!proposal) return;
    const auto& [point, parent] = *proposal;
    Statement(database_,
              "INSERT INTO trials (number, study_id, state, datetime_start) VALUES (?1, ?2, 'RUNNING', ?3)")
        .With(number, study_, Now())
        .Run();
    const std::int64_t id = database_.LastId();
    Statement insert(database_,
                     "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES "
                     "(?1, ?2, ?3, ?4)");
    for (std::size_t i = 0; i < space_.size(); ++i) {
      if (std::isnan(point[i])) continue;
      insert.With(id, space_.parameters()[i].name, point[i], distributions_[i]).Run();
    }
    if (parent >= 0) {
      Statement(database_,
                "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (?1, ?2, ?3)")
          .With(id, kParent, fmt::format("{}", parent))
          .Run();
    }
    Own(id);
    claimed = {id, number, parent, point, false};
  });
  return claimed;
}

// A trial that somebody must begin again.
std::optional<std::int64_t> Study::Abandoned() {
  Statement rows(database_,
                 "SELECT t.trial_id, t.state, a.value_json, "
                 "strftime('%s', 'now') - strftime('%s', h.heartbeat) FROM trials t "
                 "LEFT JOIN trial_system_attributes a ON a.trial_id = t.trial_id AND a.key = ?2 "
                 "LEFT JOIN trial_heartbeats h ON h.trial_id = t.trial_id "
                 "WHERE t.study_id = ?1 AND t.state IN ('RUNNING', 'WAITING') ORDER BY t.trial_id");
  rows.With(study_, kOwner);
  while (rows.Next()) {
    const double silent_s = rows.IsNull(3) ? 2 * kSilence : rows.Real(3);
    if (rows.Text(1) == "WAITING" || IsGone(rows.Text(2), silent_s)) return rows.Int(0);
  }
  return std::nullopt;
}

bool Study::IsGone(const std::string& owner, double silent_s) const {
  const std::optional<ProcessId> id = ProcessId::Parse(owner);
  if (!id) return silent_s > kSilence;
  if (id->OnThisHost()) return !id->Lives();
  return silent_s > kSilence;
}

void Study::Own(std::int64_t id) {
  Statement(database_,
            "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (?1, ?2, ?3) "
            "ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json")
      .With(id, kOwner, owner_)
      .Run();
  Statement(database_,
            "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (?1, CURRENT_TIMESTAMP) "
            "ON CONFLICT (trial_id) DO UPDATE SET heartbeat = excluded.heartbeat")
      .With(id)
      .Run();
}

namespace {

// Whether the trial is still of this process.
constexpr const char* kStillMine =
    "SELECT 1 FROM trials t JOIN trial_system_attributes a ON a.trial_id = t.trial_id AND a.key = "
    "'trireme:owner' "
    "WHERE t.trial_id = ?1 AND t.state = 'RUNNING' AND a.value_json = ?2";

}  // namespace

void Study::Report(std::int64_t id, std::int64_t step, double value) {
  database_.Write([&] {
    if (!Statement(database_, kStillMine).With(id, owner_).Next()) return;
    const auto [stored, type] = Stored(value);
    Statement insert(
        database_,
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type) "
        "VALUES (?1, ?2, ?3, ?4) ON CONFLICT (trial_id, step) DO UPDATE SET "
        "intermediate_value = excluded.intermediate_value, "
        "intermediate_value_type = excluded.intermediate_value_type");
    if (stored && !std::isnan(*stored)) {
      insert.With(id, step, *stored, type).Run();
    } else {
      insert.With(id, step, nullptr, std::isnan(value) ? "NAN" : type).Run();
    }
  });
}

void Study::Beat(std::span<const std::int64_t> ids) {
  if (ids.empty()) return;
  database_.Write([&] {
    Statement beat(database_,
                   "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP WHERE trial_id = ?1");
    for (const std::int64_t id : ids) {
      if (Statement(database_, kStillMine).With(id, owner_).Next()) beat.With(id).Run();
    }
  });
}

bool Study::End(std::int64_t id, TrialState state, std::optional<double> value,
                const std::map<std::string, std::string>& notes) {
  bool mine = false;
  database_.Write([&] {
    mine = Statement(database_, kStillMine).With(id, owner_).Next();
    if (!mine) return;
    Statement(database_, "UPDATE trials SET state = ?2, datetime_complete = ?3 WHERE trial_id = ?1")
        .With(id, NameOf(state), Now())
        .Run();
    if (value && !std::isnan(*value)) {
      const auto [stored, type] = Stored(*value);
      Statement insert(
          database_,
          "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?1, 0, ?2, ?3)");
      if (stored) {
        insert.With(id, *stored, type).Run();
      } else {
        insert.With(id, nullptr, type).Run();
      }
    }
    for (const auto& [key, json] : notes) {
      Statement(database_,
                "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?1, ?2, ?3)")
          .With(id, key, json)
          .Run();
    }
  });
  return mine;
}

void Study::Note(std::int64_t id, const std::string& key, const std::string& json) {
  database_.Write([&] {
    Statement(database_,
              "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?1, ?2, ?3) "
              "ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json")
        .With(id, key, json)
        .Run();
  });
  trials_.clear();  // one that had ended has changed
}

void Study::GiveBack(std::span<const std::int64_t> ids) {
  database_.Write([&] {
    for (const std::int64_t id : ids) {
      if (!Statement(database_, kStillMine).With(id, owner_).Next()) continue;
      Statement(database_, "UPDATE trials SET state = 'WAITING' WHERE trial_id = ?1").With(id).Run();
    }
  });
}

}  // namespace trireme
