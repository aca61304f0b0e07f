#include "trireme/tune/trial_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"
#include "trireme/tune/line_socket.h"
#include "trireme/tune/seed_relay.h"
#include "trireme/tune/trial_order.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kSign = 0.5;  // seconds between signs of life

// Whether a failure says that there was no room for a file.
bool IsNoRoom(const std::string& error) {
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT},
                             [&](int code) { return error.find(std::strerror(code)) != std::string::npos; });
}

// Says why it failed, which std::filesystem::copy does not: a full disk is an "input/output error" there.
void CopyFolder(const fs::path& from, const fs::path& to) {
  fs::create_directory(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path copy = to / entry.path().filename();
    if (entry.is_directory()) {
      CopyFolder(entry.path(), copy);
    } else {
      WriteNewFile(copy, ReadFile(entry.path()));
    }
  }
}

class Trial {
 public:
  Trial(TrialOrder order, LineSocket& socket)
      : order_(std::move(order)),
        socket_(socket),
        relay_(static_cast<int>(order_.seeds.size()), [this] { return AskAtRung(); }) {
    for (const std::uint64_t seed : order_.seeds)
      seeds_.emplace_back(*this, static_cast<int>(seeds_.size()), seed);
  }

  void Run() {
    std::vector<std::thread> threads;
    for (Seed& seed : seeds_) threads.emplace_back([&seed] { seed.Run(); });
    for (std::thread& thread : threads) thread.join();
    if (!error_.empty()) {
      const bool full = !order_.to.empty() && IsNoRoom(error_);
      std::error_code ignored;
      if (!order_.to.empty()) fs::remove_all(order_.to, ignored);  // nobody goes on from it
      socket_.Write(
          Json{{full ? "full" : "error", error_}}.dump(-1, ' ', false, Json::error_handler_t::replace));
      return;
    }
    std::vector<SeedResult> results;
    for (const Seed& seed : seeds_) results.push_back(seed.result());
    socket_.Write(
        Json{{"end", end_}, {"steps", Steps()}, {"returns", Returns()}, {"seeds", SeedsToJson(results)}}
            .dump());
  }

 private:
  // One seed. Everything belongs to whoever has the turn.
  class Seed final : public TrainObserver {
   public:
    Seed(Trial& trial, int index, std::uint64_t seed) : trial_(trial), index_(index) { result_.seed = seed; }

    void Run() {
      try {
        trial_.relay_.Begin(index_);
        const std::unique_ptr<RunSettings> settings =
            ParseRunSettings(trial_.order_.config, "the settings of the trial");
        settings->run.seed = result_.seed;
        settings->run.stop_at_target = trial_.order_.aim.objective != Objective::kReturn;
        if (settings->run.stop_at_target) settings->run.target = trial_.order_.aim.target;
        settings->Resolve();
        turn_began_ = MonotonicSeconds();
        const TrainResult trained =
            trial_.order_.to.empty() ? Train(*settings, *this) : TrainStretch(*settings);
        result_.seconds = Seconds();
        result_.steps = trained.facts.steps;
        result_.reached = trained.facts.reached_target;
        if (result_.reached) result_.steps_to_target = trained.facts.steps_to_target.value_or(result_.steps);
        result_.last_return = trained.facts.eval_return_mean;
        result_.best_return = trained.facts.best_return_mean;
      } catch (const TrialEnded&) {
        return;
      } catch (const std::exception& error) {
        trial_.Failed(error.what());
        return;
      } catch (...) {
        trial_.Failed("an unknown failure");
        return;
      }
      EndTurn();
      trial_.relay_.Finish(index_);
    }

    // On a copy of the state that it goes on from, which others may go on from too.
    TrainResult TrainStretch(RunSettings& settings) {
      const std::string name = fmt::format("seed-{}", result_.seed);
      const fs::path to = fs::path(trial_.order_.to) / name, from = fs::path(trial_.order_.from) / name;
      std::optional<RunFolder> folder;
      try {
        fs::remove_all(to);  // of a process that was killed
        if (trial_.order_.from.empty()) {
          folder = RunFolder::Create(to, "", settings.fields.ToToml());
        } else {
          fs::create_directories(to.parent_path());
          CopyFolder(from, to);
          folder = RunFolder::Resume(to);
        }
      } catch (const fs::filesystem_error& error) {
        Fail("the state of the run cannot be copied: {}", error.what());
      }
      return Train(settings, *folder, {.observer = this, .json = true, .stop = &stretch_is_done_});
    }

    void OnRow(const MetricRow& row) override {
      result_.steps = row.step();
      trial_.SayAlive();
      trial_.CheckCap();
    }

    void OnEvaluation(std::int64_t steps, const Evaluation& evaluation) override {
      result_.steps = steps;
      if (trial_.order_.until > 0 && steps >= trial_.order_.until) stretch_is_done_ = true;
      result_.last_return = evaluation.mean;
      result_.best_return =
          std::isnan(result_.best_return) ? evaluation.mean : std::max(result_.best_return, evaluation.mean);
      const bool reaches =
          trial_.order_.aim.objective != Objective::kReturn && evaluation.mean >= trial_.order_.aim.target;
      if (reaches && !reached_) {
        reached_ = true;
        result_.seconds_to_target = Seconds();
      }
      if (reached_) return;  // it is about to end
      bool rung = false;
      const std::vector<std::int64_t>& rungs = trial_.order_.rungs;
      for (; rung_ < rungs.size() && steps >= rungs[rung_]; ++rung_) rung = true;
      if (!rung) return;
      EndTurn();
      trial_.rung_ = std::max(trial_.rung_, rung_);
      trial_.relay_.Pass(index_);
      turn_began_ = MonotonicSeconds();
    }

    void OnEnd(const TrainResult&) override {}

    const SeedResult& result() const { return result_; }
    // Of its turns so far.
    double Seconds() const { return earlier_s_ + (turn_began_ > 0 ? MonotonicSeconds() - turn_began_ : 0); }

   private:
    void EndTurn() {
      earlier_s_ = Seconds();
      turn_began_ = 0;
    }

    Trial& trial_;
    int index_;
    SeedResult result_{.last_return = std::nan(""), .best_return = std::nan("")};
    std::size_t rung_ = 0;  // that comes next
    bool reached_ = false;
    std::atomic<bool> stretch_is_done_ = false;
    double earlier_s_ = 0, turn_began_ = 0;
  };

  std::vector<double> Returns() const {
    std::vector<double> returns;
    for (const Seed& seed : seeds_) returns.push_back(seed.result().last_return);
    return returns;
  }
  // That all seeds have made.
  std::int64_t Steps() const {
    std::int64_t steps = std::numeric_limits<std::int64_t>::max();
    for (const Seed& seed : seeds_) steps = std::min(steps, seed.result().steps);
    return steps;
  }

  bool AskAtRung() {
    socket_.Write(Json{{"rung", rung_ - 1}, {"returns", Returns()}}.dump());
    const std::optional<std::string> answer = socket_.Read();
    if (answer && Json::parse(*answer, nullptr, false).value("go", false)) return true;
    end_ = "stopped";
    return false;
  }

  void SayAlive() {
    const double now = MonotonicSeconds();
    if (now < last_sign_s_ + kSign) return;
    last_sign_s_ = now;
    socket_.Write(Json{{"alive", Steps()}}.dump());
  }

  void CheckCap() {
    if (order_.cap <= 0) return;
    double sum = 0;
    for (const Seed& seed : seeds_) {
      sum += order_.aim.objective == Objective::kTimeToTarget ? seed.Seconds()
                                                              : static_cast<double>(seed.result().steps);
    }
    if (sum <= order_.cap * static_cast<double>(seeds_.size())) return;
    end_ = "capped";
    relay_.EndAll();
    throw TrialEnded();
  }

  void Failed(const std::string& what) {
    if (error_.empty()) error_ = what;
    relay_.EndAll();
  }

  const TrialOrder order_;
  LineSocket& socket_;
  SeedRelay relay_;
  std::deque<Seed> seeds_;
  std::size_t rung_ = 0;  // how many rungs somebody has come to
  std::string end_ = "done", error_;
  double last_sign_s_ = 0;
};

}  // namespace

int RunTrial(int descriptor) {
  LineSocket socket(descriptor);
  const std::optional<std::string> order = socket.Read();
  if (!order) return 2;
  try {
    Trial(TrialOrder::Parse(*order), socket).Run();
  } catch (const Error& error) {
    socket.Write(Json{{"error", error.what()}}.dump());
    return 2;
  }
  return 0;
}

}  // namespace trireme
