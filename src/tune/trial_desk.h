// What a search wants to be tried next, and what becomes of what was tried: everything but running trials.
//
// Whoever runs trials, one at a time, has a seat: a process on this machine (tuner.cc), or a worker that has joined
// (joined_trials.h). A seat asks for an order (Next), hands on what the trial says (Take), or says that it has failed.
// First come trials; when all have ended, the best ones on fresh seeds.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tune/population.h"
#include "trireme/tune/sampler.h"
#include "trireme/tune/study.h"
#include "trireme/tune/trial_order.h"
#include "trireme/tune/tuner.h"

namespace trireme {

class TrialDesk {
 public:
  class Seat {
   public:
    bool idle() const { return work_ == Work::kNone; }

   private:
    friend class TrialDesk;
    enum class Work { kNone, kTrial, kFinalist };
    Work work_ = Work::kNone;
    std::int64_t id_ = 0;
    int number_ = 0;
    Point point_ = {};
  };

  // All must outlive it. Throws Error.
  TrialDesk(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options);

  Seat& AddSeat() { return seats_.emplace_back(); }
  // What it was running is given back.
  void RemoveSeat(Seat& seat);

  // What the seat, which is idle, runs next. Nothing: not now, and if Over() is true never.
  std::optional<TrialOrder> Next(Seat& seat);
  bool Over() const;
  // Takes a line that the trial of the seat has said; what is to be answered, if it waits for that. The seat is idle
  // after the last one.
  std::optional<std::string> Take(Seat& seat, const std::string& line);
  // The trial of the seat has crashed or hung.
  void Failed(Seat& seat, const std::string& why);
  // The trial of the seat is to be run by another one; `lost`: because whoever ran it is gone, which may not happen too often.
  void GiveBack(Seat& seat, bool lost = true);
  // To be called a few times a second: time may be up, and others must see that trials live. Seats may be idle afterwards,
  // whose trials are to end.
  void Look();

  // Settings of all trials, TOML.
  const std::string& base() const { return base_; }
  // A file that whoever runs trials must see, because they leave states beside it, and what it holds; empty: there is none.
  const std::filesystem::path& shared_file() const { return shared_file_; }
  const std::string& shared_text() const { return shared_text_; }
  // At the end: what still runs waits for another search. Throws Error when no trial has come to its end.
  TuneResult Result();

 private:
  using Work = Seat::Work;

  std::string StudyName() const;
  StudyProblem Problem() const;
  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  bool TimeIsUp() const;
  bool AnyBusy() const;
  bool Hopeless() const;
  std::unique_ptr<RunSettings> BaseSettings() const;
  TrialOrder OrderOf(const Point& point, int first_seed, int seeds) const;
  void MakeStretch(const Study::Claimed& claimed, TrialOrder& order) const;
  std::filesystem::path StateOf(int trial) const;
  int AllTrials() const;
  int NewestStretch();
  bool NothingLeft();
  void BeginFinals();
  std::string Refused(const Point& point) const;
  std::optional<Proposal> Propose(int number);
  std::optional<TrialOrder> NextTrial(Seat& seat);
  std::optional<TrialOrder> NextFinalist(Seat& seat);
  std::ptrdiff_t FirstRung(int number) const;
  double CapNow();
  bool AtRung(const Seat& seat, std::int64_t rung, double mean_return);
  bool Reached(const StudyTrial& trial) const;
  void Done(Seat& seat, const std::string& seeds_json);
  void End(Seat& seat, TrialState state, const std::string& why);
  void GiveAllBack();
  std::vector<const StudyTrial*> Best();
  void ChooseFinalists();
  std::vector<Finalist> Finalists();

  RunSettings& settings_;
  const Space& space_;
  const Aim aim_;
  const TuneOptions& options_;
  const std::string base_;
  std::unique_ptr<RunSettings> written_;                          // for the text of orders
  std::vector<std::pair<std::string, std::string>> base_values_;  // of the settings that are searched
  Study study_;
  std::unique_ptr<Sampler> sampler_;
  std::optional<Population> population_;  // method pbt
  int stretches_ = 1;
  std::filesystem::path states_, shared_file_;  // of a population: where trials leave their states
  std::string shared_text_;
  bool waits_ = false;  // for a trial that the next one depends on
  std::vector<std::int64_t> rungs_;
  std::list<Seat> seats_;
  bool finals_ = false;               // trials are done
  std::vector<Seat> waiting_;         // finalists, as they will be in a seat
  std::map<std::int64_t, int> lost_;  // how often who ran a trial was gone
  std::string last_error_;
  int failures_ = 0;  // of this call
  bool ended_well_ = false;
  const double began_s_, began_cpu_s_;
  double next_beat_s_ = 0;
};

}  // namespace trireme
