#include "trireme/choose/choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/choose/trial.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

// Each with the argument that is usual.
constexpr const char* kUsualCodecs[] = {"fp16", "bf16", "int8", "onebit", "topk=0.01", "powersgd=4"};
constexpr double kFarBehind = 0.7;  // of the fastest: not tried again
constexpr double kFarAhead = 2;     // of the fastest that gives up nothing: there is no doubt
constexpr int kChecks = 3;

// 1, 2, 4, ... and, for workers that need not divide shards, all.
std::vector<int> WorkerCounts(const StoreEntry& store, int processors) {
  std::vector<int> counts;
  for (int workers = 1; workers <= (store.one_worker ? 1 : processors); workers *= 2)
    counts.push_back(workers);
  if (store.one_process && counts.back() < processors && !store.one_worker) counts.push_back(processors);
  return counts;
}

std::vector<std::string> Splits(int workers) {
  std::vector<std::string> splits = {"none"};
  for (int members = 2; members <= workers; members *= 2) {
    for (const char* kind : {"pipeline", "tensor"}) splits.push_back(fmt::format("{}={}", kind, members));
  }
  return splits;
}

void Apply(const Choice& choice, const TrainOptions& options, int processors, RunSettings& settings) {
  RunConfig& run = settings.run;
  run.workers = choice.workers;
  run.store = choice.store;
  run.compress = choice.compress;
  run.model_parallel = choice.model_parallel;
  settings.Resolve(options.processes == nullptr ? 1 : options.processes->size(), processors);
}

// As the first process has them.
void Agree(std::span<double> values, const TrainOptions& options) {
  if (options.processes != nullptr) options.processes->Broadcast(values);
}

bool Stopped(const TrainOptions& options) { return options.stop != nullptr && options.stop->load(); }

bool AnyRate(std::span<const TriedChoice> tried) {
  return std::ranges::any_of(tried, [](const TriedChoice& one) { return !std::isnan(one.steps_per_s); });
}

Surroundings SurroundingsOf(const RunSettings& settings, const TrainOptions& options, int processors) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  return {.processes = options.processes == nullptr ? 1 : options.processes->size(),
          .processors = processors,
          .params = network.param_count(),
          .may_go_alone = settings.algorithm->NeedsWorkersInStep().empty() &&
                          !HasAsynchronousPreset(settings.run.env, settings.run.algo)};
}

// Those that the settings allow and that fit, and how many of them do not.
struct Possible {
  std::vector<TriedChoice> choices = {};
  int too_large = 0;
};

Possible FindPossible(const GivenChoice& given, const TrainOptions& options, int processors,
                      std::uint64_t free_bytes, RunSettings& settings) {
  const Surroundings surroundings = SurroundingsOf(settings, options, processors);
  // Processes of one host share what it has.
  const int neighbours = std::max(1, UsableProcessors() / std::max(1, processors));
  double memory = static_cast<double>(free_bytes) / neighbours;
  Agree(std::span(&memory, 1), options);
  Possible possible;
  std::string refusal;
  double least = INFINITY;
  for (const Choice& choice : Choices(given, surroundings)) {
    try {
      Apply(choice, options, processors, settings);
    } catch (const Error& error) {
      if (refusal.empty()) refusal = error.what();
      continue;
    }
    const auto needed = static_cast<double>(MemoryNeeded(settings, surroundings.params));
    least = std::min(least, needed);
    if (needed > memory) {
      ++possible.too_large;
    } else {
      possible.choices.push_back({choice, GivesUp(choice, given)});
    }
  }
  if (!possible.choices.empty()) return possible;
  if (possible.too_large == 0) Fail("{}", refusal);
  Fail("this run needs {} of memory at least, and {} are free: make the network or its batches smaller",
       FormatBytes(static_cast<std::uint64_t>(least)), FormatBytes(static_cast<std::uint64_t>(memory)));
}

// Tries choices. All processes make the same calls, and what the first one measures counts.
struct Trials {
  const TrainOptions& options;
  int processors;
  RunSettings& settings;
  std::vector<TriedChoice>& tried;

  double Try(std::size_t i, double seconds) {
    Apply(tried[i].choice, options, processors, settings);
    double steps_per_s = kUnknown;
    try {
      steps_per_s = TrySettings(settings, options, seconds);
    } catch (const Error&) {
      // Others may do; but where processes have lost each other, or somebody wants an end, none will.
      const bool another = i + 1 < tried.size() || AnyRate(tried);
      if (options.processes != nullptr || Stopped(options) || !another) throw;
    }
    Agree(std::span(&steps_per_s, 1), options);
    return steps_per_s;
  }

  // Twice, if there is time: the less disturbed of two trials counts. Returns whether there was.
  bool TryAll(double seconds) {
    const double begun_s = MonotonicSeconds();
    std::vector<std::size_t> those(tried.size());
    std::iota(those.begin(), those.end(), 0);
    for (int turn = 0; turn < 2; ++turn) {
      for (const std::size_t i : those) {
        const double slice_s = seconds / 2 / static_cast<double>(those.size());
        tried[i].steps_per_s = std::fmax(tried[i].steps_per_s, Try(i, slice_s));
      }
      double late = MonotonicSeconds() - begun_s > seconds || tried.size() == 1;
      Agree(std::span(&late, 1), options);
      if (late != 0) return tried.size() == 1;
      const double most = tried[Fastest(tried)].steps_per_s;
      std::erase_if(those, [&](std::size_t i) { return !(tried[i].steps_per_s > kFarBehind * most); });
    }
    return true;
  }

  // What gives something up must be ahead again and again: of its figures the worst counts, and of the best that gives up
  // nothing the best. Where trials are long, being far ahead twice is enough.
  void Confirm(double seconds, bool short_trials) {
    std::size_t last = tried.size();
    for (int check = 0; check < kChecks; ++check) {
      const std::size_t leading = Fastest(tried);
      if (std::exchange(last, leading) != leading) check = 0;
      std::vector<TriedChoice> exact = tried;
      for (TriedChoice& one : exact) {
        if (!one.gives_up.empty()) one.steps_per_s = kUnknown;
      }
      if (tried[leading].gives_up.empty() || !AnyRate(exact)) return;
      const std::size_t other = Fastest(exact);
      if (!short_trials && check > 0 && tried[leading].steps_per_s > kFarAhead * tried[other].steps_per_s)
        return;
      tried[other].steps_per_s = std::fmax(tried[other].steps_per_s, Try(other, seconds));
      tried[leading].steps_per_s = std::fmin(tried[leading].steps_per_s, Try(leading, seconds));
    }
  }
};

}  // namespace

std::string Choice::text() const {
  return fmt::format("workers={} store={} compress={} model_parallel={}", workers, store, compress,
                     model_parallel);
}

std::vector<Choice> Choices(const GivenChoice& given, const Surroundings& surroundings) {
  std::vector<Choice> choices;
  std::vector<std::string> stores = {"allreduce"};
  if (surroundings.may_go_alone && surroundings.processes == 1) stores.emplace_back("shared");
  if (given.store) stores = {*given.store};
  for (const std::string& name : stores) {
    const StoreEntry& store = FindStore(name);
    std::vector<int> counts = WorkerCounts(store, surroundings.processors);
    if (!given.store && name == "shared") std::erase(counts, 1);  // alone is alone
    if (given.workers) counts = {*given.workers};
    for (const int workers : counts) {
      std::vector<std::string> splits = {"none"}, codecs = {std::string(kNoCodec)};
      if (store.splits && surroundings.params >= kWorthSplitting)
        splits = Splits(workers * surroundings.processes);
      if (given.model_parallel) splits = {*given.model_parallel};
      const bool sends = store.on_servers || surroundings.processes > 1;
      if (store.compresses && sends)
        codecs.insert(codecs.end(), std::begin(kUsualCodecs), std::end(kUsualCodecs));
      if (given.compress) codecs = {*given.compress};
      for (const std::string& split : splits) {
        for (const std::string& codec : codecs) {
          // Gradients of parts are sent as they are.
          const bool both = split != "none" && codec != kNoCodec;
          if (!both || (given.model_parallel && given.compress))
            choices.push_back({workers, name, codec, split});
        }
      }
    }
  }
  std::stable_partition(choices.begin(), choices.end(),
                        [&](const Choice& choice) { return GivesUp(choice, given).empty(); });
  return choices;
}

std::string GivesUp(const Choice& choice, const GivenChoice& given) {
  if (!given.store && FindStore(choice.store).one_process && !FindStore(choice.store).one_worker)
    return "workers on their own, so no run is repeated exactly";
  if (!given.compress && choice.compress != kNoCodec)
    return "gradients are sent roughly, so parameters are not those of compress=none";
  if (!given.model_parallel && choice.model_parallel.starts_with("tensor"))
    return "sums are rounded otherwise, so parameters are not, bit for bit, those of model_parallel=none";
  return "";
}

std::size_t Fastest(std::span<const TriedChoice> tried) {
  const auto best = [&](bool gives_up) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (tried[i].gives_up.empty() == gives_up || std::isnan(tried[i].steps_per_s)) continue;
      if (!best || tried[i].steps_per_s > tried[*best].steps_per_s) best = i;
    }
    return best;
  };
  const std::optional<std::size_t> exact = best(false), other = best(true);
  TRIREME_CHECK(exact || other);
  if (!exact) return *other;
  if (!other) return *exact;
  return tried[*other].steps_per_s > kWorthIt * tried[*exact].steps_per_s ? *other : *exact;
}

std::string ChoiceLine(std::span<const TriedChoice> tried, std::size_t chosen, int too_large) {
  const TriedChoice& taken = tried[chosen];
  std::string line = fmt::format("parallel auto: {}: predicted {} steps/s", taken.choice.text(),
                                 FormatCount(taken.steps_per_s));
  if (!taken.gives_up.empty()) line += fmt::format("; {}", taken.gives_up);
  line += fmt::format(" (of {} {}", tried.size(), tried.size() == 1 ? "choice" : "choices");
  if (too_large > 0) line += fmt::format(", {} more do not fit into memory", too_large);
  const TriedChoice* next = nullptr;
  for (const TriedChoice& other : tried) {
    if (&other == &taken || std::isnan(other.steps_per_s)) continue;
    if (next == nullptr || other.steps_per_s > next->steps_per_s) next = &other;
  }
  if (next != nullptr)
    line += fmt::format("; next: {}: {}", next->choice.text(), FormatCount(next->steps_per_s));
  return line + ")";
}

// Each worker has parameters, moments, weights as its executor lays them out, and gradients: of a shard, and sums that
// wait for others. A codec keeps what it has not sent, and adds up messages. A checkpoint holds what was learned, and the
// experience twice more.
std::uint64_t MemoryNeeded(const RunSettings& settings, std::size_t params) {
  const RunConfig& run = settings.run;
  const auto members = static_cast<std::size_t>(run.split().members);
  const std::size_t moments = OptimizerRule(settings.algorithm->optimizer()).moments();
  const auto groups = std::max(1, run.in_step() ? run.total_workers() / run.split().members : 1);
  const auto own_shards = static_cast<unsigned>(std::max(1, run.shards / groups));
  const std::size_t copies = 2 + moments + 1 + std::bit_width(own_shards);
  const std::size_t of_process = 1 + moments + (run.gradient_codec() == kNoCodec ? 0 : 3);
  const auto workers = static_cast<std::size_t>(run.workers);
  const std::size_t floats = params * copies * workers / members + params * of_process;
  return sizeof(float) * floats + 3 * settings.ExperienceBytes();
}

std::string ChooseParallel(const GivenChoice& given, const TrainOptions& options, int processors,
                           double seconds, RunSettings& settings, std::uint64_t free_bytes) {
  Apply({.workers = given.workers.value_or(0),
         .store = given.store.value_or(Choice().store),
         .compress = given.compress.value_or(Choice().compress),
         .model_parallel = given.model_parallel.value_or(Choice().model_parallel)},
        options, processors, settings);
  auto [tried, too_large] = FindPossible(given, options, processors, free_bytes, settings);
  Trials trials{options, processors, settings, tried};
  const bool short_trials = trials.TryAll(seconds);
  trials.Confirm(seconds / 8, short_trials);
  const std::size_t chosen = Fastest(tried);
  Apply(tried[chosen].choice, options, processors, settings);
  settings.run.predicted_steps_per_s = tried[chosen].steps_per_s;
  return ChoiceLine(tried, chosen, too_large);
}

}  // namespace trireme
