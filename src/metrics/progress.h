// The line a person watches while a run trains:
//
//   steps 1.2M/5.0M  24%  412k steps/s  return 233.1  eval 310.0 (target 475)  ETA 9s
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace trireme {

// Three significant digits at most, with k, M, G or T: "999", "1.2k", "412k", "5.0M"; "?" when not finite.
std::string FormatCount(double count);

// "512 B", "1.2 MB", "3.0 GB"; powers of 1000.
std::string FormatBytes(std::uint64_t bytes);

// "0.4s", "9s", "1m05s", "2h03m", "3d04h"; "?" when negative or not finite.
std::string FormatDuration(double seconds);

// Three significant digits: "850 ns", "12.3 us", "2.00 s"; "-" when not finite.
std::string FormatSeconds(double seconds);

// NaN and zero totals mean unknown: the part of the line is left out.
struct Progress {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t steps = 0;
  std::int64_t total_steps = 0;
  double wall_s = 0;  // since the run started; also the clock that paces the printing
  double steps_per_s = kUnknown;
  double episode_return = kUnknown;
  double eval_return = kUnknown;
  double target = kUnknown;
};

std::string FormatProgress(const Progress& progress);

enum class ProgressStyle {
  kSilent,    // nothing
  kPlain,     // a line now and then, for logs
  kTerminal,  // one line, rewritten in place
};

// Silent with --json; otherwise by whether `fd` is a terminal.
ProgressStyle ChooseProgressStyle(int fd, bool json);

// Prints progress to a file descriptor it does not own. A failing write is ignored: a closed terminal must
// not end a run. Thread safety: none.
class ProgressPrinter {
 public:
  // `plain_interval_s`: least time between two lines of the plain style.
  ProgressPrinter(int fd, ProgressStyle style, double plain_interval_s = 10);
  // Ends an unfinished line of the terminal style, so that what is printed next starts on its own line.
  ~ProgressPrinter();
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  // Prints if enough time has passed since the last line, by progress.wall_s. Cheap otherwise: call it
  // freely.
  void Update(const Progress& progress);

  // Prints a line that stays, above the progress line.
  void Note(const std::string& line);

  // Prints the last state, whatever the time, and ends the line.
  void Finish(const Progress& progress);

 private:
  void Print(const Progress& progress);

  int fd_;
  ProgressStyle style_;
  double interval_s_;
  double next_print_s_;
  bool line_open_ = false;
};

}  // namespace trireme
