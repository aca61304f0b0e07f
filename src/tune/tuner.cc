#include "trireme/tune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/tune/rungs.h"
#include "trireme/tune/sampler.h"
#include "trireme/tune/study.h"
#include "trireme/tune/trial_process.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using Stopping = TuneMethod::Stopping;

constexpr int kMostAttempts = 50;  // to propose settings that go together
constexpr int kHopeless = 10;  // trials that fail before any other ends: something is wrong with all of them
constexpr double kBeyondBest =
    1.5;  // a trial that has taken so much longer than the best one takes cannot win
constexpr const char *kSeeds = "seeds", *kFresh = "fresh_seeds", *kError = "error";  // notes of trials

// A process that runs a trial, or a finalist again.
struct Slot {
  std::unique_ptr<TrialProcess> process;
  std::int64_t id = 0;
  int number = 0;
  Point point = {};
  bool again = false;  // a finalist
};

double MeanOf(const Json& numbers) {
  double sum = 0;
  if (!numbers.is_array() || numbers.empty()) return std::nan("");
  for (const Json& number : numbers) sum += number.is_number() ? number.get<double>() : std::nan("");
  return sum / static_cast<double>(numbers.size());
}

class Tuner {
 public:
  Tuner(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options)
      : settings_(settings),
        space_(space),
        aim_(aim),
        options_(options),
        base_(settings.fields.ToToml()),
        study_(options.study, StudyName(), Problem(), space, aim.maximise()),
        sampler_(MakeSampler(options.method->sampler, space,
                             {.seed = settings.run.seed, .grid_levels = options.grid_levels})),
        processors_(UsableProcessorList()),
        slots_(static_cast<std::size_t>(options.parallel)) {
    if (options.method->stopping != Stopping::kNever)
      rungs_ = RungSteps(aim.steps, std::max<std::int64_t>(1, settings.run.eval_every));
  }

  TuneResult Run() {
    const double began_s = MonotonicSeconds(), began_cpu_s = CpuSeconds();
    if (options_.hours > 0) until_s_ = began_s + 3600 * options_.hours;
    Loop([this] { return BeginTrial(); });
    TuneResult result;
    if (!Stopped()) {
      ChooseFinalists();
      Loop([this] { return BeginFinalist(); }, /*timed=*/false);
    }
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
    result.all = study_.Trials();
    result.history = study_.History();
    result.wall_s = MonotonicSeconds() - began_s;
    result.tuner_cpu_s = CpuSeconds() - began_cpu_s;
    return result;
  }

 private:
  std::string StudyName() const {
    return fmt::format("{} {} {}", settings_.run.env, settings_.run.algo, NameOf(aim_.objective));
  }

  StudyProblem Problem() const {
    return {{"environment", settings_.run.env_identity()},
            {"algorithm", settings_.run.algo},
            {"objective", std::string(NameOf(aim_.objective))},
            {"target", aim_.maximise() ? "none" : fmt::format("{}", aim_.target)},
            {"steps", fmt::format("{}", aim_.steps)},
            {"seed", fmt::format("{}", settings_.run.seed)},
            {"number of seeds", fmt::format("{}", options_.seeds)},
            {"search space", space_.ToText()},
            {"list of other settings", Sha256Hex(base_)}};
  }

  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  bool TimeIsUp() const { return until_s_ > 0 && MonotonicSeconds() > until_s_; }

  // Keeps all slots busy with what `begin` begins, until that has nothing left and all have ended.
  void Loop(const std::function<bool()>& begin, bool timed = true) {
    for (bool more = true;;) {
      const bool leave = Stopped() || (timed && TimeIsUp());
      while (more && !leave && FreeSlot() != nullptr) more = begin();
      const bool busy = std::ranges::any_of(slots_, [](const Slot& slot) { return slot.process != nullptr; });
      if (leave) return GiveUp();
      if (!busy) return;  // another process may still be at work on the last ones
      Wait();
      for (Slot& slot : slots_) {
        if (slot.process != nullptr) Attend(slot);
      }
      BeatIfDue();
    }
  }

  Slot* FreeSlot() {
    const auto free = std::ranges::find_if(slots_, [](const Slot& slot) { return slot.process == nullptr; });
    return free == slots_.end() ? nullptr : &*free;
  }

  void Start(Slot& slot, TrialOrder order) {
    const auto index = static_cast<std::size_t>(&slot - slots_.data());
    const int processor = processors_.empty() ? -1 : processors_[index % processors_.size()];
    slot.process = std::make_unique<TrialProcess>(options_.command, order, processor);
  }

  TrialOrder OrderOf(const Point& point) const {
    const std::unique_ptr<RunSettings> settings = ParseRunSettings(base_, "the settings of the study");
    space_.Apply(point, settings->fields);
    return {.config = settings->fields.ToToml(), .seeds = {}, .rungs = {}, .aim = aim_};
  }

  // What is wrong with the settings of a point; empty: nothing.
  std::string Refused(const Point& point) const {
    try {
      const std::unique_ptr<RunSettings> settings = ParseRunSettings(base_, "the settings of the study");
      space_.Apply(point, settings->fields);
      settings->ResolveWithout(settings_.run.env_spec);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  // The settings as they are come first: then the search never ends with something worse.
  std::optional<Point> Propose(int number) {
    const std::vector<PastTrial> history = study_.History();
    std::optional<Point> last;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      std::optional<Point> point;
      if (number == 0 && attempt == 0 && options_.method->sampler != "grid") {
        point = space_.Nearest(settings_.fields);
      } else {
        point = sampler_->Propose(history, number, attempt);
      }
      if (!point) break;
      last = point;
      if (Refused(*point).empty()) break;
    }
    return last;  // one that is refused fails, and is recorded
  }

  bool BeginTrial() {
    if (Hopeless()) return false;
    const auto claimed = study_.Claim(options_.trials, [this](int number) { return Propose(number); });
    if (!claimed) return false;
    Slot& slot = *FreeSlot();
    slot.id = claimed->id;
    slot.number = claimed->number;
    slot.point = claimed->point;
    slot.again = false;
    TrialOrder order = OrderOf(claimed->point);
    for (int i = 0; i < options_.seeds; ++i)
      order.seeds.push_back(settings_.run.seed + static_cast<std::uint64_t>(i));
    order.rungs.assign(rungs_.begin() + FirstRung(claimed->number), rungs_.end());
    order.cap = CapNow();
    Start(slot, std::move(order));
    return true;
  }

  std::ptrdiff_t FirstRung(int number) const {
    const auto rungs = static_cast<int>(rungs_.size());
    return options_.method->stopping == Stopping::kBrackets ? BracketOf(number, rungs) : 0;
  }

  // Of methods that end trials early, and objectives that only grow.
  double CapNow() {
    if (options_.method->stopping == Stopping::kNever || aim_.maximise()) return 0;
    const StudyTrial* best = nullptr;
    for (const StudyTrial& trial : study_.Trials()) {
      if (trial.state == TrialState::kComplete && trial.value &&
          (best == nullptr || *trial.value < *best->value))
        best = &trial;
    }
    return best == nullptr ? 0 : kBeyondBest * *best->value;
  }

  void Wait() {
    std::vector<pollfd> waits;
    for (const Slot& slot : slots_) {
      if (slot.process == nullptr) continue;
      waits.push_back({slot.process->socket(), POLLIN, 0});
      waits.push_back({slot.process->errors(), POLLIN, 0});
    }
    poll(waits.data(), waits.size(), 250);  // signals and silence are looked for in between
  }

  void Attend(Slot& slot) {
    const bool open = slot.process->Receive();
    while (slot.process != nullptr) {
      const std::optional<std::string> line = slot.process->TakeLine();
      if (!line) break;
      Take(slot, Json::parse(*line, nullptr, false));
    }
    if (slot.process == nullptr) return;
    if (!open) return End(slot, TrialState::kFail, "it " + slot.process->Ended());
    if (MonotonicSeconds() > slot.process->last_sign_s() + options_.silence_s)
      End(slot, TrialState::kFail, fmt::format("it hung: nothing came for {:g} seconds", options_.silence_s));
  }

  void Take(Slot& slot, const Json& message) {
    if (!message.is_object()) return End(slot, TrialState::kFail, "it said something that is no message");
    if (message.contains("error")) return End(slot, TrialState::kFail, message["error"].get<std::string>());
    if (message.contains("rung")) {
      const auto rung = static_cast<std::size_t>(message["rung"].get<int>() + FirstRung(slot.number));
      slot.process->Answer(rung < rungs_.size() && AtRung(slot, rungs_[rung], MeanOf(message["returns"])));
    } else if (message.contains("end")) {
      const std::string end = message["end"];
      if (end == "done") return Done(slot, message["seeds"].get<std::string>());
      const double mean = MeanOf(message["returns"]);
      const std::int64_t steps = message["steps"];
      // Before its first rung nothing else says how it stood.
      if (end == "capped" && !slot.again && std::isfinite(mean) && (rungs_.empty() || steps < rungs_.front()))
        study_.Report(slot.id, steps, mean);
      End(slot, TrialState::kPruned,
          end == "capped" ? "it took longer than the best ones take" : "it was not among the best at a rung");
    }
  }

  bool AtRung(const Slot& slot, std::int64_t rung, double mean_return) {
    if (!std::isfinite(mean_return)) return false;
    std::vector<double> others;
    for (const StudyTrial& trial : study_.Trials()) {
      const bool same = trial.number != slot.number && FirstRung(trial.number) == FirstRung(slot.number);
      if (!same) continue;
      const auto report = trial.reports.find(rung);
      if (report != trial.reports.end()) {
        others.push_back(-report->second);
      } else if (trial.state == TrialState::kComplete && !aim_.maximise() && Reached(trial)) {
        others.push_back(-std::numeric_limits<double>::infinity());  // was through before it came there
      }
    }
    study_.Report(slot.id, rung, mean_return);
    return GoesOn(-mean_return, others);
  }

  bool Reached(const StudyTrial& trial) const {
    const double worst =
        aim_.objective == Objective::kTimeToTarget ? kDay : kTimesSteps * static_cast<double>(aim_.steps);
    return trial.value && *trial.value < worst / options_.seeds;
  }

  void Done(Slot& slot, const std::string& seeds_json) {
    const std::vector<SeedResult> seeds = SeedsFromJson(seeds_json);
    const Score score = ScoreOf(aim_, seeds);
    if (!std::isfinite(score.value)) return End(slot, TrialState::kFail, "its result is not finite");
    if (slot.again) {
      study_.Note(slot.id, kFresh, seeds_json);
      options_.say(
          fmt::format("trial {} on {} fresh seeds: {}", slot.number, seeds.size(), TextOf(aim_, score)));
      slot.process.reset();
      return;
    }
    study_.End(slot.id, TrialState::kComplete, score.value, {{kSeeds, seeds_json}});
    ended_well_ = true;
    const StudyTrial& best = *Best().front();
    options_.say(fmt::format("trial {}: {} (best: trial {}, {})", slot.number, TextOf(aim_, score),
                             best.number, TextOf(aim_, ScoreOf(aim_, SeedsFromJson(best.notes.at(kSeeds))))));
    slot.process.reset();
  }

  void End(Slot& slot, TrialState state, const std::string& why) {
    slot.process.reset();
    if (state == TrialState::kFail) {
      last_error_ = why;
      ++failures_;
      options_.say(fmt::format("trial {} failed: {}", slot.number, why));
    } else {
      ended_well_ = true;
      options_.say(fmt::format("trial {} ended early: {}", slot.number, why));
    }
    if (slot.again) {
      study_.Note(slot.id, kFresh, "[]");
      return;
    }
    study_.End(slot.id, state, std::nullopt,
               {{kError, Json(why).dump(-1, ' ', false, Json::error_handler_t::replace)}});
  }

  // Whatever is tried fails: going on would only repeat it.
  bool Hopeless() const { return !ended_well_ && failures_ >= std::max(kHopeless, 2 * options_.parallel); }

  void GiveUp() {
    std::vector<std::int64_t> trials;
    for (Slot& slot : slots_) {
      if (slot.process != nullptr && !slot.again) trials.push_back(slot.id);
      slot.process.reset();
    }
    study_.GiveBack(trials);
  }

  void BeatIfDue() {
    const double now = MonotonicSeconds();
    if (now < next_beat_s_) return;
    next_beat_s_ = now + Study::kBeat;
    std::vector<std::int64_t> ids;
    for (const Slot& slot : slots_) {
      if (slot.process != nullptr && !slot.again) ids.push_back(slot.id);
    }
    study_.Beat(ids);
  }

  // The best complete trials, the best first.
  std::vector<const StudyTrial*> Best() {
    std::vector<const StudyTrial*> best;
    for (const StudyTrial& trial : study_.Trials()) {
      if (trial.state == TrialState::kComplete && trial.value && trial.notes.contains(kSeeds))
        best.push_back(&trial);
    }
    std::ranges::stable_sort(best, [&](const StudyTrial* a, const StudyTrial* b) {
      return aim_.maximise() ? *a->value > *b->value : *a->value < *b->value;
    });
    if (static_cast<int>(best.size()) > options_.finalists)
      best.resize(static_cast<std::size_t>(std::max(1, options_.finalists)));
    return best;
  }

  void ChooseFinalists() {
    if (options_.finalists == 0 || options_.fresh_seeds == 0) return;
    for (const StudyTrial* trial : Best()) {
      const auto fresh = trial->notes.find(kFresh);
      if (fresh != trial->notes.end() &&
          static_cast<int>(SeedsFromJson(fresh->second).size()) >= options_.fresh_seeds)
        continue;
      waiting_.push_back({.process = nullptr,
                          .id = trial->id,
                          .number = trial->number,
                          .point = trial->point,
                          .again = true});
    }
  }

  bool BeginFinalist() {
    if (waiting_.empty()) return false;
    Slot& slot = *FreeSlot();
    slot = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    TrialOrder order = OrderOf(slot.point);
    for (int i = 0; i < options_.fresh_seeds; ++i)
      order.seeds.push_back(settings_.run.seed + static_cast<std::uint64_t>(options_.seeds + i));
    Start(slot, std::move(order));
    return true;
  }

  std::vector<Finalist> Finalists() {
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

  RunSettings& settings_;
  const Space& space_;
  const Aim aim_;
  const TuneOptions& options_;
  const std::string base_;  // settings of all trials
  Study study_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<std::int64_t> rungs_;
  std::vector<int> processors_;
  std::vector<Slot> slots_;
  std::vector<Slot> waiting_;  // finalists
  std::string last_error_;
  int failures_ = 0;  // of this call
  bool ended_well_ = false;
  double until_s_ = 0, next_beat_s_ = 0;
};

}  // namespace

const TuneMethod& FindTuneMethod(std::string_view name) {
  std::vector<std::string_view> names;
  for (const TuneMethod& method : kTuneMethods) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  Fail("--method {}: expected one of {}", name, fmt::join(names, ", "));
}

TuneResult Tune(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options) {
  return Tuner(settings, space, aim, options).Run();
}

}  // namespace trireme
