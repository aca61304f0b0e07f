// How long a host may make no progress before it is given up.
//
// What counts is whether the host goes on, not for whom: a worker waits for one batch at a time, while the host may be
// stuck in another of its batches. So whoever waits, for whatever part or answer, watches the whole host.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace trireme {

// What is waited for.
enum class HostWork {
  kStep,    // steps, resets, drawing, saving
  kMaking,  // starting a process, importing modules and making environments: never less than kLeastForMaking
};

// The limits of a pool. Thread safety: everything may be called from several threads at once.
class HostPatience {
 public:
  static constexpr double kLeastForMaking = 60;
  // Once the run was asked to end: of everything, so that it does even where there is no limit.
  static constexpr double kOnceStopped = 10;

  explicit HostPatience(double timeout_s) : timeout_s_(timeout_s) {}  // 0: none

  double timeout_s() const { return timeout_s_; }
  // Seconds without progress; 0: for ever.
  double LimitOf(HostWork work) const;
  // "3 s (env_timeout_s)", and why where it is another number.
  std::string Describe(HostWork work) const;

  // As EnvProcesses has it.
  void SetStop(std::function<bool()> stop);
  bool StopRequested() const;

 private:
  const double timeout_s_;
  mutable std::mutex mutex_;  // guards the rest
  std::function<bool()> stop_;
};

// Something that changes whenever a host has done something.
struct HostProgress {
  std::uint32_t serving = 0;  // HostBell
  std::uint32_t steps = 0;    // of what it answers: HostBell::progress
  std::uint32_t done = 0;     // commands of all its parts, their sum
  std::uint32_t at = 0;       // the first copy of the part it is at that has not got to its command

  bool operator==(const HostProgress&) const = default;
};

// One wait. Time in which this program did not run does not count.
class HostWait {
 public:
  static constexpr double kSlice = 0.02;  // seconds of one look

  // For a part: what the host answers meanwhile is the business of whoever asked it, who waits no longer than this.
  static HostWait ForPart(const HostPatience& patience) {
    return HostWait(patience, HostWork::kStep, HostWork::kMaking);
  }
  static HostWait ForAnswer(const HostPatience& patience, HostWork work) {
    return HostWait(patience, work, work);
  }

  // After a look of so many seconds. Returns whether it has been too long.
  bool IsOver(const HostProgress& progress, double seconds);
  // What it was too long for.
  HostWork work() const { return WorkOf(last_.serving); }

 private:
  HostWait(const HostPatience& patience, HostWork idle, HostWork answering)
      : patience_(patience), idle_(idle), answering_(answering) {}
  HostWork WorkOf(std::uint32_t serving) const;

  const HostPatience& patience_;
  const HostWork idle_, answering_;  // where it is at nothing, and where it answers
  HostProgress last_;
  double waited_s_ = 0;
};

}  // namespace trireme
