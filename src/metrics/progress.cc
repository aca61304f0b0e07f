#include "trireme/metrics/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kTerminalInterval = 0.1;

void WriteIgnoringErrors(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A line longer than the terminal would wrap, and could then not be rewritten.
std::size_t TerminalWidth(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return "?";
  if (std::abs(count) < 999.5) return fmt::format("{:.0f}", count);
  constexpr std::array<const char*, 4> kSuffix = {"k", "M", "G", "T"};
  std::size_t i = 0;
  for (count /= 1000; std::abs(count) >= 999.5 && i + 1 < kSuffix.size(); ++i) count /= 1000;
  return fmt::format("{:.{}f}{}", count, std::abs(count) < 99.95 ? 1 : 0, kSuffix[i]);
}

std::string FormatBytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnit = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1000;
  std::size_t i = 0;
  for (; value >= 999.95 && i + 1 < kUnit.size(); ++i) value /= 1000;
  return fmt::format("{:.1f} {}", value, kUnit[i]);
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return "?";
  if (seconds < 0.95) return fmt::format("{:.1f}s", seconds);
  const double whole = std::round(seconds);
  if (whole < 60) return fmt::format("{:.0f}s", whole);
  if (whole < 3600) return fmt::format("{:.0f}m{:02.0f}s", std::floor(whole / 60), std::fmod(whole, 60));
  const double minutes = std::round(seconds / 60);
  if (minutes < 24 * 60)
    return fmt::format("{:.0f}h{:02.0f}m", std::floor(minutes / 60), std::fmod(minutes, 60));
  const double hours = std::round(seconds / 3600);
  return fmt::format("{:.0f}d{:02.0f}h", std::floor(hours / 24), std::fmod(hours, 24));
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  double shown = seconds * 1e9;
  std::size_t unit = 0;
  for (; std::abs(shown) >= 999.5 && unit < 3; ++unit) shown /= 1000;
  const int decimals = std::abs(shown) < 9.995 ? 2 : std::abs(shown) < 99.95 ? 1 : 0;
  constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return fmt::format("{:.{}f} {}", shown, decimals, kUnits[unit]);
}

std::string FormatProgress(const Progress& progress) {
  const auto steps = static_cast<double>(progress.steps);
  const auto total = static_cast<double>(progress.total_steps);
  std::string line = "steps " + FormatCount(steps);
  if (total > 0) {
    const double percent = std::clamp(100 * steps / total, 0.0, 100.0);
    line += fmt::format("/{}  {:.0f}%", FormatCount(total), std::floor(percent));
  }
  if (std::isfinite(progress.steps_per_s))
    line += fmt::format("  {} steps/s", FormatCount(progress.steps_per_s));
  if (std::isfinite(progress.episode_return)) line += fmt::format("  return {:.1f}", progress.episode_return);
  if (std::isfinite(progress.eval_return)) line += fmt::format("  eval {:.1f}", progress.eval_return);
  if (std::isfinite(progress.target)) {
    line += fmt::format("{}target {:g}{}", std::isfinite(progress.eval_return) ? " (" : "  ", progress.target,
                        std::isfinite(progress.eval_return) ? ")" : "");
  }
  if (total > steps && std::isfinite(progress.steps_per_s) && progress.steps_per_s > 0) {
    line += "  ETA " + FormatDuration((total - steps) / progress.steps_per_s);
  }
  return line;
}

ProgressStyle ChooseProgressStyle(int fd, bool json) {
  if (json) return ProgressStyle::kSilent;
  return ::isatty(fd) ? ProgressStyle::kTerminal : ProgressStyle::kPlain;
}

ProgressPrinter::ProgressPrinter(int fd, ProgressStyle style, double plain_interval_s)
    : fd_(fd),
      style_(style),
      interval_s_(style == ProgressStyle::kTerminal ? kTerminalInterval : plain_interval_s),
      // A log needs no line for the first instant; a terminal shows at once that something happens.
      next_print_s_(style == ProgressStyle::kTerminal ? 0 : plain_interval_s) {}

ProgressPrinter::~ProgressPrinter() {
  if (line_open_) WriteIgnoringErrors(fd_, "\n");
}

void ProgressPrinter::Update(const Progress& progress) {
  if (style_ == ProgressStyle::kSilent || progress.wall_s < next_print_s_) return;
  next_print_s_ = progress.wall_s + interval_s_;
  Print(progress);
}

void ProgressPrinter::Note(const std::string& line) {
  if (style_ == ProgressStyle::kSilent) return;
  WriteIgnoringErrors(fd_, fmt::format("{}{}\n", line_open_ ? "\r\x1b[K" : "", line));
  line_open_ = false;
}

void ProgressPrinter::Finish(const Progress& progress) {
  if (style_ == ProgressStyle::kSilent) return;
  Print(progress);
  if (line_open_) WriteIgnoringErrors(fd_, "\n");
  line_open_ = false;
}

void ProgressPrinter::Print(const Progress& progress) {
  const std::string line = FormatProgress(progress);
  if (style_ == ProgressStyle::kPlain) {
    WriteIgnoringErrors(fd_, line + "\n");
    return;
  }
  constexpr std::string_view kEraseToEndOfLine = "\x1b[K";
  WriteIgnoringErrors(fd_, fmt::format("\r{}{}", line.substr(0, TerminalWidth(fd_) - 1), kEraseToEndOfLine));
  line_open_ = true;
}

}  // namespace trireme
