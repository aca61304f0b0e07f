#include "trireme/tune/trial_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/tune/process_id.h"
#include "trireme/tune/rungs.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using Stopping = TuneMethod::Stopping;

constexpr int kMostAttempts = 50;  // to propose settings that go together
constexpr int kHopeless = 10;  // trials that fail before any other ends: something is wrong with all of them
constexpr int kMostLost = 3;   // times that whoever runs a trial may vanish: perhaps the trial does it
constexpr double kBeyondBest =
    1.5;  // a trial that has taken so much longer than the best one takes cannot win
constexpr const char *kSeeds = "seeds", *kFresh = "fresh_seeds", *kError = "error";  // notes of trials

double MeanOf(const Json& numbers) {
  double sum = 0;
  if (!numbers.is_array() || numbers.empty()) return std::nan("");
  for (const Json& number : numbers) sum += number.is_number() ? number.get<double>() : std::nan("");
  return sum / static_cast<double>(numbers.size());
}

}  // namespace

TrialDesk::TrialDesk(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options)
    : settings_(settings),
      space_(space),
      aim_(aim),
      options_(options),
      base_(settings.fields.ToToml()),
      study_(options.study, StudyName(), Problem(), space, aim.maximise()),
      sampler_(MakeSampler(options.method->sampler, space,
                           {.seed = settings.run.seed, .grid_levels = options.grid_levels})),
      began_s_(MonotonicSeconds()),
      began_cpu_s_(CpuSeconds()) {
  written_ = BaseSettings();
  for (const Parameter& parameter : space.parameters())
    base_values_.emplace_back(parameter.setting, Unquoted(written_->fields.Get(parameter.setting)));
  switch (options.method->stopping) {
    case Stopping::kNever:
      break;
    case Stopping::kRungs:
    case Stopping::kBrackets:
      rungs_ = RungSteps(aim.steps, std::max<std::int64_t>(1, settings.run.eval_every));
      break;
    case Stopping::kPopulation:
      population_.emplace(space, settings.run.seed, options.population);
      stretches_ = options.trials / options.population;
      states_ = std::filesystem::absolute(options.study).replace_extension("states");
      std::filesystem::create_directories(states_);
      shared_file_ = states_ / "study";
      if (!std::filesystem::exists(shared_file_))
        WriteFileAtomically(shared_file_, ProcessId::OfThis().ToJson());
      shared_text_ = ReadFile(shared_file_);
      break;
  }
}

std::string TrialDesk::StudyName() const {
  return fmt::format("{} {} {}", settings_.run.env, settings_.run.algo, NameOf(aim_.objective));
}

StudyProblem TrialDesk::Problem() const {
  StudyProblem problem = {{"environment", settings_.run.env_identity()},
                          {"algorithm", settings_.run.algo},
                          {"objective", std::string(NameOf(aim_.objective))},
                          {"target", aim_.maximise() ? "none" : fmt::format("{}", aim_.target)},
                          {"steps", fmt::format("{}", aim_.steps)},
                          {"seed", fmt::format("{}", settings_.run.seed)},
                          {"number of seeds", fmt::format("{}", options_.seeds)},
                          {"search space", space_.ToText()}};
  if (options_.method->stopping == Stopping::kPopulation) {
    problem.emplace_back("population", fmt::format("{}", options_.population));
    problem.emplace_back("number of stretches", fmt::format("{}", options_.trials / options_.population));
  }
  problem.emplace_back("list of other settings", Sha256Hex(base_));
  return problem;
}

bool TrialDesk::TimeIsUp() const {
  return options_.hours > 0 && MonotonicSeconds() > began_s_ + 3600 * options_.hours;
}

bool TrialDesk::AnyBusy() const {
  return std::ranges::any_of(seats_, [](const Seat& seat) { return !seat.idle(); });
}

// Whatever is tried fails: going on would only repeat it.
bool TrialDesk::Hopeless() const {
  return !ended_well_ && failures_ >= std::max(kHopeless, 2 * static_cast<int>(seats_.size()));
}

void TrialDesk::RemoveSeat(Seat& seat) {
  if (!seat.idle()) GiveBack(seat);
  seats_.remove_if([&](const Seat& other) { return &other == &seat; });
}

std::optional<TrialOrder> TrialDesk::Next(Seat& seat) {
  if (Stopped()) return std::nullopt;
  if (!finals_) {
    waits_ = false;
    if (!TimeIsUp() && !Hopeless()) {
      if (std::optional<TrialOrder> order = NextTrial(seat)) return order;
    }
    if (AnyBusy() || waits_) return std::nullopt;
    BeginFinals();  // another process may still be at work on the last trials
  }
  return NextFinalist(seat);
}

void TrialDesk::BeginFinals() {
  finals_ = true;
  if (NewestStretch() == stretches_ - 1) ChooseFinalists();
}

bool TrialDesk::Over() const { return Stopped() || (finals_ && waiting_.empty() && !AnyBusy()); }

std::unique_ptr<RunSettings> TrialDesk::BaseSettings() const {
  auto settings = std::make_unique<RunSettings>(settings_.run.env, settings_.run.algo, settings_.run.store);
  settings->fields.ApplyToml(base_, "the settings of the study");
  return settings;
}

TrialOrder TrialDesk::OrderOf(const Point& point, int first_seed, int seeds) const {
  for (const auto& [setting, value] : base_values_) written_->fields.Set(setting, value, setting);
  space_.Apply(point, written_->fields);
  TrialOrder order{.config = written_->fields.ToToml(), .seeds = {}, .rungs = {}, .aim = aim_};
  for (int i = first_seed; i < first_seed + seeds; ++i)
    order.seeds.push_back(settings_.run.seed + static_cast<std::uint64_t>(i));
  return order;
}

// What is wrong with the settings of a point; empty: nothing.
std::string TrialDesk::Refused(const Point& point) const {
  try {
    const std::unique_ptr<RunSettings> settings = BaseSettings();
    space_.Apply(point, settings->fields);
    settings->ResolveWithout(settings_.run.env_spec);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The settings as they are come first: then the search never ends with something worse.
std::optional<Proposal> TrialDesk::Propose(int number) {
  const std::vector<PastTrial> history = study_.History();
  std::optional<Proposal> last;
  waits_ = population_ && !population_->Ready(history, number);
  if (waits_) return std::nullopt;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (number == 0 && attempt == 0 && options_.method->sampler != "grid") {
      last = {.point = space_.Nearest(settings_.fields)};
    } else if (population_) {
      last = population_->Propose(history, number, attempt);
    } else {
      const std::optional<Point> point = sampler_->Propose(history, number, attempt);
      if (!point) break;
      last = {.point = *point};
    }
    if (Refused(last->point).empty()) break;
  }
  return last;  // one that is refused fails, and is recorded
}

std::optional<TrialOrder> TrialDesk::NextTrial(Seat& seat) {
  const auto claimed = study_.Claim(AllTrials(), [this](int number) { return Propose(number); });
  if (!claimed) return std::nullopt;
  TrialOrder order = OrderOf(claimed->point, 0, options_.seeds);
  order.rungs.assign(rungs_.begin() + FirstRung(claimed->number), rungs_.end());
  order.cap = CapNow();
  if (population_) MakeStretch(*claimed, order);
  seat.work_ = Work::kTrial;
  seat.id_ = claimed->id;
  seat.number_ = claimed->number;
  seat.point_ = claimed->point;
  return order;
}

int TrialDesk::AllTrials() const { return population_ ? stretches_ * population_->size() : options_.trials; }

std::filesystem::path TrialDesk::StateOf(int trial) const { return states_ / fmt::format("{}", trial); }

// A trial of a population. What trials before it have left is removed when no other can go on from it: what runs, or must be
// run again, is at most one stretch behind, and goes on from the one before that.
void TrialDesk::MakeStretch(const Study::Claimed& claimed, TrialOrder& order) const {
  const int stretch = population_->StretchOf(claimed.number);
  order.until = aim_.steps / stretches_ * (stretch + 1);
  order.to = StateOf(claimed.number).string();
  if (claimed.parent >= 0) order.from = StateOf(claimed.parent).string();
  if (!order.from.empty() && !std::filesystem::is_directory(order.from))
    Fail("{} is missing, from which trial {} goes on: bring back {}, and give the same command again",
         order.from, claimed.number, states_.string());
  std::error_code ignored;
  for (int old = (stretch - 4) * population_->size(); old < (stretch - 2) * population_->size(); ++old)
    std::filesystem::remove_all(StateOf(old), ignored);
}

// The last one that somebody has come to the end of.
int TrialDesk::NewestStretch() {
  int newest = stretches_ - 1;
  if (!population_) return newest;
  newest = 0;
  for (const StudyTrial& trial : study_.Trials()) {
    if (trial.state == TrialState::kComplete) newest = std::max(newest, population_->StretchOf(trial.number));
  }
  return newest;
}

std::optional<TrialOrder> TrialDesk::NextFinalist(Seat& seat) {
  if (waiting_.empty()) return std::nullopt;
  seat = waiting_.front();
  waiting_.erase(waiting_.begin());
  return OrderOf(seat.point_, options_.seeds, options_.fresh_seeds);
}

std::ptrdiff_t TrialDesk::FirstRung(int number) const {
  const auto rungs = static_cast<int>(rungs_.size());
  return options_.method->stopping == Stopping::kBrackets ? BracketOf(number, rungs) : 0;
}

// Of methods that end trials early, and objectives that only grow.
double TrialDesk::CapNow() {
  if (options_.method->stopping == Stopping::kNever || aim_.maximise()) return 0;
  const StudyTrial* best = nullptr;
  for (const StudyTrial& trial : study_.Trials()) {
    if (trial.state == TrialState::kComplete && trial.value &&
        (best == nullptr || *trial.value < *best->value))
      best = &trial;
  }
  return best == nullptr ? 0 : kBeyondBest * *best->value;
}

std::optional<std::string> TrialDesk::Take(Seat& seat, const std::string& line) {
  const Json message = Json::parse(line, nullptr, false);
  try {
    if (!message.is_object()) {
      Failed(seat, "it said something that is no message");
    } else if (message.contains("full")) {
      GiveBack(seat, /*lost=*/false);
      Fail("cannot write {}: the disk is full. Nothing is lost: make room and give the same command again",
           states_.string());
    } else if (message.contains("error")) {
      Failed(seat, message["error"].get<std::string>());
    } else if (message.contains("rung")) {
      const auto rung = static_cast<std::size_t>(message["rung"].get<int>() + FirstRung(seat.number_));
      const bool go = rung < rungs_.size() && AtRung(seat, rungs_[rung], MeanOf(message["returns"]));
      return Json{{"go", go}}.dump();
    } else if (message.contains("end")) {
      const std::string end = message["end"];
      if (end == "done") {
        Done(seat, message["seeds"].get<std::string>());
        return std::nullopt;
      }
      const double mean = MeanOf(message["returns"]);
      const std::int64_t steps = message["steps"];
      // Before its first rung nothing else says how it stood.
      if (end == "capped" && seat.work_ == Work::kTrial && std::isfinite(mean) &&
          (rungs_.empty() || steps < rungs_.front()))
        study_.Report(seat.id_, steps, mean);
      End(seat, TrialState::kPruned,
          end == "capped" ? "it took longer than the best ones take" : "it was not among the best at a rung");
    }
  } catch (const Json::exception& error) {
    if (!seat.idle()) Failed(seat, fmt::format("it said something that is no message: {}", error.what()));
  }
  return std::nullopt;
}

bool TrialDesk::AtRung(const Seat& seat, std::int64_t rung, double mean_return) {
  if (!std::isfinite(mean_return)) return false;
  std::vector<double> others;
  for (const StudyTrial& trial : study_.Trials()) {
    const bool same = trial.number != seat.number_ && FirstRung(trial.number) == FirstRung(seat.number_);
    if (!same) continue;
    const auto report = trial.reports.find(rung);
    if (report != trial.reports.end()) {
      others.push_back(-report->second);
    } else if (trial.state == TrialState::kComplete && !aim_.maximise() && Reached(trial)) {
      others.push_back(-std::numeric_limits<double>::infinity());  // was through before it came there
    }
  }
  study_.Report(seat.id_, rung, mean_return);
  return GoesOn(-mean_return, others);
}

bool TrialDesk::Reached(const StudyTrial& trial) const {
  const double worst =
      aim_.objective == Objective::kTimeToTarget ? kDay : kTimesSteps * static_cast<double>(aim_.steps);
  return trial.value && *trial.value < worst / options_.seeds;
}

void TrialDesk::Done(Seat& seat, const std::string& seeds_json) {
  std::vector<SeedResult> seeds;
  try {
    seeds = SeedsFromJson(seeds_json);
  } catch (const Error& error) {
    return Failed(seat, error.what());
  }
  if (seeds.empty()) return Failed(seat, "it has no results");
  const Score score = ScoreOf(aim_, seeds);
  if (!std::isfinite(score.value)) return Failed(seat, "its result is not finite");
  if (seat.work_ == Work::kFinalist) {
    study_.Note(seat.id_, kFresh, seeds_json);
    options_.say(
        fmt::format("trial {} on {} fresh seeds: {}", seat.number_, seeds.size(), TextOf(aim_, score)));
    seat.work_ = Work::kNone;
    return;
  }
  study_.End(seat.id_, TrialState::kComplete, score.value, {{kSeeds, seeds_json}});
  ended_well_ = true;
  const std::vector<const StudyTrial*> best = Best();
  std::string line = fmt::format("trial {}: {}", seat.number_, TextOf(aim_, score));
  if (!best.empty())
    line += fmt::format(" (best: trial {}, {})", best.front()->number,
                        TextOf(aim_, ScoreOf(aim_, SeedsFromJson(best.front()->notes.at(kSeeds)))));
  options_.say(line);
  seat.work_ = Work::kNone;
}

void TrialDesk::Failed(Seat& seat, const std::string& why) { End(seat, TrialState::kFail, why); }

void TrialDesk::End(Seat& seat, TrialState state, const std::string& why) {
  const bool finalist = std::exchange(seat.work_, Work::kNone) == Work::kFinalist;
  if (state == TrialState::kFail) {
    last_error_ = why;
    ++failures_;
    options_.say(fmt::format("trial {} failed: {}", seat.number_, why));
  } else {
    ended_well_ = true;
    options_.say(fmt::format("trial {} ended early: {}", seat.number_, why));
  }
  if (finalist) {
    study_.Note(seat.id_, kFresh, "[]");
    return;
  }
  study_.End(seat.id_, state, std::nullopt,
             {{kError, Json(why).dump(-1, ' ', false, Json::error_handler_t::replace)}});
}

void TrialDesk::GiveBack(Seat& seat, bool lost) {
  if (seat.work_ == Work::kFinalist) waiting_.insert(waiting_.begin(), seat);
  if (seat.work_ == Work::kTrial) {
    if (lost && ++lost_[seat.id_] >= kMostLost)
      return Failed(seat, fmt::format("whoever ran it was gone, {} times", kMostLost));
    study_.GiveBack(std::span(&seat.id_, 1));
  }
  seat.work_ = Work::kNone;
}

void TrialDesk::GiveAllBack() {
  std::vector<std::int64_t> trials;
  for (Seat& seat : seats_) {
    if (seat.work_ == Work::kTrial) trials.push_back(seat.id_);
    seat.work_ = Work::kNone;
  }
  if (!trials.empty()) study_.GiveBack(trials);
}

// Not only for this search: nobody runs one of the last trials.
bool TrialDesk::NothingLeft() {
  const std::vector<StudyTrial>& trials = study_.Trials();
  return static_cast<int>(trials.size()) >= AllTrials() && std::ranges::all_of(trials, &StudyTrial::ended);
}

void TrialDesk::Look() {
  if (Stopped() || (!finals_ && TimeIsUp())) GiveAllBack();
  if (!finals_ && !AnyBusy() && (TimeIsUp() || NothingLeft())) BeginFinals();
  const double now = MonotonicSeconds();
  if (now < next_beat_s_) return;
  next_beat_s_ = now + Study::kBeat;
  std::vector<std::int64_t> ids;
  for (const Seat& seat : seats_) {
    if (seat.work_ == Work::kTrial) ids.push_back(seat.id_);
  }
  study_.Beat(ids);
}

// The best complete trials, the best first.
std::vector<const StudyTrial*> TrialDesk::Best() {
  const int newest = NewestStretch();
  std::vector<const StudyTrial*> best;
  for (const StudyTrial& trial : study_.Trials()) {
    const bool comparable = !population_ || population_->StretchOf(trial.number) == newest;
    if (trial.state == TrialState::kComplete && trial.value && trial.notes.contains(kSeeds) && comparable)
      best.push_back(&trial);
  }
  std::ranges::stable_sort(best, [&](const StudyTrial* a, const StudyTrial* b) {
    return aim_.maximise() ? *a->value > *b->value : *a->value < *b->value;
  });
  if (static_cast<int>(best.size()) > options_.finalists)
    best.resize(static_cast<std::size_t>(std::max(1, options_.finalists)));
  return best;
}

void TrialDesk::ChooseFinalists() {
  if (options_.finalists == 0 || options_.fresh_seeds == 0) return;
  for (const StudyTrial* trial : Best()) {
    const auto fresh = trial->notes.find(kFresh);
    if (fresh != trial->notes.end() &&
        static_cast<int>(SeedsFromJson(fresh->second).size()) >= options_.fresh_seeds)
      continue;
    Seat& finalist = waiting_.emplace_back();
    finalist.work_ = Work::kFinalist;
    finalist.id_ = trial->id;
    finalist.number_ = trial->number;
    finalist.point_ = trial->point;
  }
}

std::vector<Finalist> TrialDesk::Finalists() {
  std::vector<Finalist> finalists;
  for (const StudyTrial* trial : Best()) {
    Finalist& finalist = finalists.emplace_back();
    finalist.number = trial->number;
    finalist.point = trial->point;
    finalist.seeds = SeedsFromJson(trial->notes.at(kSeeds));
    finalist.found = ScoreOf(aim_, finalist.seeds);
    const auto fresh = trial->notes.find(kFresh);
    if (fresh == trial->notes.end()) continue;
    std::vector<SeedResult> seeds = SeedsFromJson(fresh->second);
    if (seeds.empty()) continue;
    finalist.seeds = std::move(seeds);
    finalist.fresh = ScoreOf(aim_, finalist.seeds);
  }
  // Who was run again is known better than who was not.
  std::ranges::stable_sort(finalists, [&](const Finalist& a, const Finalist& b) {
    if (a.fresh.has_value() != b.fresh.has_value()) return a.fresh.has_value();
    const double x = a.fresh.value_or(a.found).value, y = b.fresh.value_or(b.found).value;
    return aim_.maximise() ? x > y : x < y;
  });
  return finalists;
}

TuneResult TrialDesk::Result() {
  GiveAllBack();
  TuneResult result;
  for (const StudyTrial& trial : study_.Trials()) {
    ++result.trials;
    result.complete += trial.state == TrialState::kComplete;
    result.pruned += trial.state == TrialState::kPruned;
    result.failed += trial.state == TrialState::kFail;
  }
  result.interrupted = Stopped();
  result.finalists = Finalists();
  if (!result.interrupted && result.finalists.empty()) {
    Fail("no trial has come to its end, so there is no best one{}: see {}",
         last_error_.empty() ? "" : fmt::format(" (the last one that failed: {})", last_error_),
         study_.file().string());
  }
  if (population_ && !result.finalists.empty())
    result.trained = StateOf(result.finalists.front().number) / fmt::format("seed-{}", settings_.run.seed);
  result.unfinished = population_ && NewestStretch() < stretches_ - 1;
  result.all = study_.Trials();
  result.history = study_.History();
  result.wall_s = MonotonicSeconds() - began_s_;
  result.tuner_cpu_s = CpuSeconds() - began_cpu_s_;
  return result;
}

}  // namespace trireme
