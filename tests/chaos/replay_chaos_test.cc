// Actors that are killed and started every two seconds, and replay servers that are frozen, cut off and killed, for
// REPLAY_CHAOS_SECONDS (40 unless set). The learner must go on, reach its target and learn from nothing twice, and nobody's
// memory may grow. CHAOS_SEED chooses who is struck.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "replay_training.h"

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class ReplayChaosTest : public CliTest {};

TEST_F(ReplayChaosTest, TheLearnerGoesOnAndNothingIsRememberedTwice) {
  ReplayTraining training(folder_ / "training", static_cast<unsigned>(FromEnvironment("CHAOS_SEED", 1)));
  // Until `done`, or nothing comes of it.
  const auto continues_until = [&](const auto& done) {
    const auto deadline = Clock::now() + seconds(120);
    while (!done()) {
      if (!training.Continue() || Clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return true;
  };
  const auto goes_on = [&](std::size_t rows) {
    const std::size_t before = training.Rows();
    return continues_until([&] { return training.Rows() >= before + rows; });
  };
  ASSERT_TRUE(goes_on(200));
  const auto begun = Clock::now();
  const auto half = seconds(std::max(20, FromEnvironment("REPLAY_CHAOS_SECONDS", 40))) / 2;
  auto next_actor = begun, next_server = begun;
  bool second = false;
  for (auto now = begun; now < begun + 2 * half; now = Clock::now()) {
    ASSERT_TRUE(training.Continue()) << "the learner has ended";
    if (now >= next_actor) {
      training.StrikeActor();
      next_actor += seconds(2);
    }
    if (now >= next_server) {
      training.StrikeServer();
      next_server += ReplayTraining::kStrike + seconds(2);
    }
    if (!second && now >= begun + half) {
      second = true;
      training.BeginSecondHalf();
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  ASSERT_TRUE(continues_until([&] { return !training.struck(); }));
  ASSERT_TRUE(goes_on(500)) << "after the last strike";
  // Who waits for a server that is struck waits as long as the strike. Nobody runs faster than this test.
  EXPECT_LT(training.LongestPause(),
            std::chrono::duration<double>(ReplayTraining::kStrike).count() / 2 + training.OwnPause());
  std::cout << "  " << training.server_strikes() << " strikes of servers, " << training.actor_strikes()
            << " of actors; the longest pause of the learner " << training.LongestPause()
            << " s, of this test " << training.OwnPause() << " s" << std::endl;
  const Json result = training.Finish(200'000);
  EXPECT_TRUE(result.value("reached_target", false)) << result;
  ASSERT_NO_FATAL_FAILURE(training.ExpectNothingTwice());
  EXPECT_GT(training.audited(), 32768u);
  training.ExpectFlatMemory();
}

}  // namespace
}  // namespace trireme::testing
