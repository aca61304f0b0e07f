// Processes that are really killed, at random moments.
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>

#include "trireme/base/system.h"
#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

struct Life {
  std::size_t floats;
  std::uint64_t log_bytes;
  bool durable;
  int kills;
};

// Recovers or begins the part and makes updates for ever; writes the version after each to `acknowledge`.
[[noreturn]] void Serve(const Course& course, const PartStorage& storage, int acknowledge) {
  try {
    std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
    if (part == nullptr) part = std::make_unique<ParameterPart>(course.setup(), storage, course.Start());
    for (;;) {
      course.Run(*part, part->version() + 1);
      const std::uint64_t version = part->version();
      if (::write(acknowledge, &version, sizeof version) != sizeof version) ::_exit(4);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    ::_exit(3);
  }
}

// Kills the process after some acknowledgements and a moment more, and returns the last version it
// acknowledged, `before` if none.
std::uint64_t LiveAndDie(const Course& course, const PartStorage& storage, std::uint64_t before,
                         std::uint32_t acknowledged, double moment_s) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    Serve(course, storage, ends[1]);
  }
  ::close(ends[1]);
  std::uint64_t last = before;
  const auto take = [&] {
    std::uint64_t version = 0;
    if (::read(ends[0], &version, sizeof version) != sizeof version) return false;
    EXPECT_EQ(version, last + 1 + (last == before && version == before + 2))
        << "one more than was acknowledged";
    last = version;
    return true;
  };
  pollfd ready = {.fd = ends[0], .events = POLLIN, .revents = 0};
  bool lives = true;
  for (std::uint32_t i = 0; lives && i < acknowledged; ++i) {
    lives = ::poll(&ready, 1, 10'000) == 1 && take();
  }
  EXPECT_TRUE(lives) << "the process ended by itself, or made no update for ten seconds";
  for (const double until = MonotonicSeconds() + moment_s; MonotonicSeconds() < until;) {
  }
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself: " << status;
  while (take()) {
  }
  ::close(ends[0]);
  return last;
}

class PartKilled : public PartFolderTest, public testing::WithParamInterface<Life> {};
INSTANTIATE_TEST_SUITE_P(
    Often, PartKilled,
    testing::Values(Life{.floats = 9, .log_bytes = 5000, .durable = false, .kills = 40},
                    Life{.floats = 9, .log_bytes = 5000, .durable = true, .kills = 10},
                    Life{.floats = 30'000, .log_bytes = 0, .durable = false, .kills = 20}),
    [](const auto& info) {
      return fmt::format("{}floats{}", info.param.floats, info.param.durable ? "Durable" : "");
    });

TEST_P(PartKilled, NothingAcknowledgedIsLostAndNothingIsMadeTwice) {
  const Life life = GetParam();
  Course course(life.floats);
  PartStorage storage = Storage(life.log_bytes);
  storage.durable = life.durable;
  storage.audit = root_ / "audit";
  RandomStream random(2, Purpose::kTest, 0, life.floats);
  std::uint64_t version = 0;
  int past = 0;
  for (int i = 0; i < life.kills; ++i) {
    // Every fourth dies at once: while it begins or recovers.
    const std::uint32_t acknowledged = i % 4 == 0 ? 0 : 1 + random.NextBelow(life.durable ? 10 : 30);
    const double moment_s = random.NextUniform() * (acknowledged == 0 ? 3e-3 : 3e-4);
    const std::uint64_t last = LiveAndDie(course, storage, version, acknowledged, moment_s);
    const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
    if (part == nullptr) {
      ASSERT_EQ(last, 0u);
      continue;
    }
    ASSERT_GE(part->version(), last) << "an acknowledged update is lost";
    ASSERT_LE(part->version(), last + 1);
    past += part->version() > last;
    version = part->version();
    course.Expect(*part);
    ASSERT_EQ(ReadFile(storage.audit), AuditOf(version));
    if (HasFailure()) return;
  }
  EXPECT_GT(version, static_cast<std::uint64_t>(life.kills));
  RecordProperty("updates", static_cast<int>(version));
  RecordProperty("killed_before_acknowledging", past);
}

}  // namespace
}  // namespace trireme
