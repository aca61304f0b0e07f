#include "trireme/metrics/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "trireme/base/file.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

TEST(FormatCount, ThreeDigitsAtMost) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(999.7), "1.0k");
  EXPECT_EQ(FormatCount(1234), "1.2k");
  EXPECT_EQ(FormatCount(99'940), "99.9k");
  EXPECT_EQ(FormatCount(99'960), "100k");
  EXPECT_EQ(FormatCount(412'345), "412k");
  EXPECT_EQ(FormatCount(999'600), "1.0M");
  EXPECT_EQ(FormatCount(5'000'000), "5.0M");
  EXPECT_EQ(FormatCount(2.5e9), "2.5G");
  EXPECT_EQ(FormatCount(7e12), "7.0T");
  EXPECT_EQ(FormatCount(-1500), "-1.5k");
  EXPECT_EQ(FormatCount(NAN), "?");
  EXPECT_EQ(FormatCount(INFINITY), "?");
}

TEST(FormatDuration, TwoUnitsAtMost) {
  EXPECT_EQ(FormatDuration(0), "0.0s");
  EXPECT_EQ(FormatDuration(0.43), "0.4s");
  EXPECT_EQ(FormatDuration(0.97), "1s");
  EXPECT_EQ(FormatDuration(9.2), "9s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(65), "1m05s");
  EXPECT_EQ(FormatDuration(3599.7), "1h00m");
  EXPECT_EQ(FormatDuration(2 * 3600 + 3 * 60), "2h03m");
  EXPECT_EQ(FormatDuration(86'399), "1d00h");
  EXPECT_EQ(FormatDuration(3 * 86'400 + 4 * 3600), "3d04h");
  EXPECT_EQ(FormatDuration(-1), "?");
  EXPECT_EQ(FormatDuration(NAN), "?");
  EXPECT_EQ(FormatDuration(INFINITY), "?");
}

Progress Sample() {
  Progress progress;
  progress.steps = 1'200'000;
  progress.total_steps = 5'000'000;
  progress.steps_per_s = 412'000;
  progress.episode_return = 233.1;
  progress.eval_return = 310;
  progress.target = 475;
  return progress;
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(FormatSeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.00099999), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0), "0.00 ns");
  EXPECT_EQ(FormatSeconds(250), "250 s");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "-");
}

TEST(FormatProgress, WholeLine) {
  EXPECT_EQ(FormatProgress(Sample()),
            "steps 1.2M/5.0M  24%  412k steps/s  return 233.1  eval 310.0 (target 475)  ETA 9s");
}

TEST(FormatProgress, UnknownPartsAreLeftOut) {
  EXPECT_EQ(FormatProgress(Progress{}), "steps 0");
  Progress progress = Sample();
  progress.eval_return = Progress::kUnknown;
  progress.episode_return = Progress::kUnknown;
  EXPECT_EQ(FormatProgress(progress), "steps 1.2M/5.0M  24%  412k steps/s  target 475  ETA 9s");
  progress.steps_per_s = 0;
  EXPECT_EQ(FormatProgress(progress), "steps 1.2M/5.0M  24%  0 steps/s  target 475");
}

TEST(FormatProgress, BeyondTheTotalIsAllOfIt) {
  Progress progress;
  progress.steps = 5'000'100;
  progress.total_steps = 5'000'000;
  progress.steps_per_s = 1;
  EXPECT_EQ(FormatProgress(progress), "steps 5.0M/5.0M  100%  1 steps/s");
  progress.steps = 4'999'999;
  EXPECT_EQ(FormatProgress(progress), "steps 5.0M/5.0M  99%  1 steps/s  ETA 1s");
}

class ProgressPrinterTest : public testing::Test {
 protected:
  ProgressPrinterTest() : fd_(::open((folder_ / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~ProgressPrinterTest() override { ::close(fd_); }
  std::string Output() const { return ReadFile(folder_ / "out"); }
  static Progress At(double wall_s, std::int64_t steps) {
    Progress progress;
    progress.wall_s = wall_s;
    progress.steps = steps;
    return progress;
  }

  TestFolder folder_;
  int fd_;
};

TEST_F(ProgressPrinterTest, StyleFollowsTheDestination) {
  EXPECT_EQ(ChooseProgressStyle(fd_, false), ProgressStyle::kPlain);
  EXPECT_EQ(ChooseProgressStyle(fd_, true), ProgressStyle::kSilent);
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_EQ(ChooseProgressStyle(terminal, false), ProgressStyle::kTerminal);
  EXPECT_EQ(ChooseProgressStyle(terminal, true), ProgressStyle::kSilent);
  ::close(terminal);
}

TEST_F(ProgressPrinterTest, TerminalRewritesOneLineTenTimesASecond) {
  {
    ProgressPrinter printer(fd_, ProgressStyle::kTerminal);
    printer.Update(At(0, 1));
    printer.Update(At(0.05, 2));
    printer.Update(At(0.11, 3));
    printer.Update(At(0.2, 4));
  }
  EXPECT_EQ(Output(), "\rsteps 1\x1b[K\rsteps 3\x1b[K\n");
}

TEST_F(ProgressPrinterTest, TerminalFinishesWithTheLastState) {
  {
    ProgressPrinter printer(fd_, ProgressStyle::kTerminal);
    printer.Update(At(0, 1));
    printer.Finish(At(0.01, 2));
  }
  EXPECT_EQ(Output(), "\rsteps 1\x1b[K\rsteps 2\x1b[K\n");
}

TEST_F(ProgressPrinterTest, TerminalLineNeverWraps) {
  Progress progress = Sample();
  progress.eval_return = -123456789.1;
  ASSERT_GT(FormatProgress(progress).size(), 80u);
  ProgressPrinter(fd_, ProgressStyle::kTerminal).Update(progress);
  EXPECT_EQ(Output(), fmt::format("\r{}\x1b[K\n", FormatProgress(progress).substr(0, 79)));
}

TEST_F(ProgressPrinterTest, PlainPrintsNowAndThen) {
  {
    ProgressPrinter printer(fd_, ProgressStyle::kPlain, 10);
    printer.Update(At(1, 1));
    printer.Update(At(11, 2));
    printer.Update(At(20, 3));
    printer.Update(At(21, 4));
    printer.Finish(At(22, 5));
  }
  EXPECT_EQ(Output(), "steps 2\nsteps 4\nsteps 5\n");
}

TEST_F(ProgressPrinterTest, NotesStayAboveTheRewrittenLine) {
  {
    ProgressPrinter printer(fd_, ProgressStyle::kTerminal);
    printer.Note("first");
    printer.Update(At(0, 1));
    printer.Note("second");
    printer.Update(At(1, 2));
  }
  EXPECT_EQ(Output(), "first\n\rsteps 1\x1b[K\r\x1b[Ksecond\n\rsteps 2\x1b[K\n");
}

TEST_F(ProgressPrinterTest, SilentPrintsNothing) {
  {
    ProgressPrinter printer(fd_, ProgressStyle::kSilent);
    printer.Update(At(100, 1));
    printer.Note("nothing");
    printer.Finish(At(200, 2));
  }
  EXPECT_EQ(Output(), "");
}

TEST(ProgressPrinter, FailingOutputDoesNotEndTheRun) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  ProgressPrinter printer(full, ProgressStyle::kTerminal);
  EXPECT_NO_THROW(printer.Update(Sample()));
  EXPECT_NO_THROW(printer.Finish(Sample()));
  ::close(full);
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.0 kB");
  EXPECT_EQ(FormatBytes(999'949), "999.9 kB");
  EXPECT_EQ(FormatBytes(999'951), "1.0 MB");
  EXPECT_EQ(FormatBytes(44'000'000), "44.0 MB");
  EXPECT_EQ(FormatBytes(~std::uint64_t{0}), "18446.7 PB");
}

}  // namespace
}  // namespace trireme
