// `trireme eval --render`: films and pictures of what was learned, and what cannot be drawn or kept.

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <regex>

#ifdef TRIREME_HAS_FFMPEG
#include "trireme/picture/test_decoder.h"
#endif

#include "run_util.h"
#include "trireme/env/gym/test_python.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class RenderTest : public CliTest {
 protected:
  Outcome Render(const std::string& out, const Args& more = {}, const ProcessOptions& options = {}) const {
    return RunTrireme(Args{"eval", Path("run"), "--episodes", "2", "--render", out} + more, options);
  }
  // What the program says of episodes it has drawn: their steps.
  static std::vector<int> StepsSaid(const Outcome& outcome) {
    const std::regex line(R"(: episode (\d+), (\d+) steps, return )");
    std::vector<int> steps;
    for (std::sregex_iterator at(outcome.out.begin(), outcome.out.end(), line), end; at != end; ++at) {
      EXPECT_EQ(std::stoi((*at)[1]), static_cast<int>(steps.size()) + 1);
      steps.push_back(std::stoi((*at)[2]));
    }
    return steps;
  }
  std::size_t Entries(const std::string& name) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(Path(name)), fs::directory_iterator()));
  }
  std::size_t PicturesInReport() const {
    const std::string html = ReadText(Path("run/report.html"));
    std::size_t count = 0;
    for (std::size_t at = html.find("data:image/png"); at != std::string::npos;
         at = html.find("data:image/png", at + 1)) {
      ++count;
    }
    return count;
  }
};

TEST_F(RenderTest, MakesFramesOfTheFirstEvaluationEpisode) {
  FinishedRun("run");
  const auto before = Snapshot(Path("run"));
  const Outcome outcome = Render(Path("frames/"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<int> steps = StepsSaid(outcome);
  ASSERT_EQ(steps.size(), 1u) << outcome.out;
  EXPECT_EQ(Entries("frames"), static_cast<std::size_t>(steps[0]) + 1);
  EXPECT_TRUE(fs::exists(Path("frames/000000.png")));
  EXPECT_EQ(Snapshot(Path("run")), before);
  // On CartPole a step is worth 1: the return of the first episode is that of an evaluation of one.
  const Json eval = ResultOf(RunTrireme({"eval", Path("run"), "--episodes", "1", "--json"}));
  EXPECT_EQ(eval["eval_return_mean"], steps[0]);

  const Outcome other = Render(Path("other/"), {"--seed", "99", "--which", "last", "--json"});
  EXPECT_EQ(ResultOf(other)["which"], "last");
  EXPECT_NE(ReadText(Path("other/000000.png")), ReadText(Path("frames/000000.png")));
}

TEST_F(RenderTest, MakesTheSameFilmAgain) {
  FinishedRun("run");
  const std::vector<int> steps = StepsSaid(Render(Path("a.gif"), {"--render-episodes", "3"}));
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_EQ(Render(Path("b.gif"), {"--render-episodes", "3"}).code, 0);
  EXPECT_EQ(ReadText(Path("a.gif")), ReadText(Path("b.gif")));
}

#ifdef TRIREME_HAS_FFMPEG
TEST_F(RenderTest, FilmsHaveEveryStepAtTheRateOfTheEnvironment) {
  FinishedRun("run", {"--set", "env_max_steps=60"});
  for (const char* name : {"a.gif", "a.mp4"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = Render(Path(name), {"--render-episodes", "2"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<int> steps = StepsSaid(outcome);
    ASSERT_EQ(steps.size(), 2u);
    const Decoded film = DecodeFile(Path(name));
    ASSERT_EQ(film.pictures.size(), static_cast<std::size_t>(steps[0] + steps[1] + 2));
    EXPECT_NEAR(film.duration_s, static_cast<double>(film.pictures.size()) / 50, 1e-3);
    for (const Picture& picture : film.pictures) {
      EXPECT_EQ(picture.width, 600);
      EXPECT_EQ(picture.height, 400);
      const Colour sky = picture.At(5, 5), ground = picture.At(5, 390);
      EXPECT_GE(sky.red, 250);
      EXPECT_NEAR(ground.red, 228, 6);
      EXPECT_NEAR(ground.blue, 235, 6);
    }
    EXPECT_NE(film.pictures.front(), film.pictures.back());
  }
}

TEST_F(RenderTest, EveryBuiltInEnvironmentCanBeWatched) {
  for (const char* env : {"MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1"}) {
    SCOPED_TRACE(env);
    const std::string run = Path(env);
    ResultOf(RunTrireme({"train", "--env", env, "--out", run, "--workers", "1", "--json", "--steps", "2000",
                         "--set", "eval_episodes=2", "--set", "env_max_steps=40"}));
    const Outcome outcome = RunTrireme({"eval", run, "--episodes", "1", "--render", run + ".gif"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(StepsSaid(outcome), std::vector<int>{40});
    EXPECT_GT(DecodeFile(run + ".gif").pictures.size(), 20u);
  }
}
#endif

TEST_F(RenderTest, RefusesWhatIsNoPlaceForPictures) {
  FinishedRun("run");
  for (const char* name : {"a", "a.avi", "frames"}) {
    ExpectRefused(Render(Path(name)), {Path(name), ".gif or .mp4", "slash"});
  }
  ExpectRefused(Render(""), {".gif or .mp4"});
  ExpectRefused(Render(Path("missing/a.gif")), {"there is no folder", Path("missing")});
  for (const char* bad : {"0", "-1", "1001", "many"}) {
    ExpectRefused(Render(Path("a.gif"), {"--render-episodes", bad}), {"--render-episodes"});
  }
  ExpectRefused(RunTrireme({"eval", Path("run"), "--render-episodes", "2"}),
                {"--render-episodes is for --render"});
  EXPECT_FALSE(fs::exists(Path("a.gif")));
}

TEST_F(RenderTest, AnEnvironmentWithoutPicturesIsNamed) {
  const std::string env = "plugin:" TRIREME_FRAGILE_PLUGIN ":Sturdy-v0";
  ResultOf(RunTrireme({"train", "--env", env, "--workers", "1", "--out", Path("run"), "--json", "--steps",
                       "2000", "--set", "eval_episodes=2"}));
  ExpectRefused(Render(Path("a.gif")), {env, "has no pictures"});
  EXPECT_FALSE(fs::exists(Path("a.gif")));
  EXPECT_EQ(ReadText(Path("run/report.html")).find("An evaluation episode"), std::string::npos);
}

TEST_F(RenderTest, ReplacesNothing) {
  FinishedRun("run");
  WriteText(Path("a.gif"), "old");
  ExpectRefused(Render(Path("a.gif")), {Path("a.gif"), "is there already"});
  EXPECT_EQ(ReadText(Path("a.gif")), "old");
  const auto before = Snapshot(Path("run"));
  ExpectRefused(Render(Path("run/")), {"is not empty"});
  EXPECT_EQ(Snapshot(Path("run")), before);
  fs::create_symlink("/dev/full", Path("b.gif"));
  ExpectRefused(Render(Path("b.gif")), {"is there already"});
}

TEST_F(RenderTest, WithoutItsLibraryMp4SaysWhatInstallsIt) {
  FinishedRun("run");
  // A copy of the program has no plug-ins beside it.
  fs::create_directory(Path("bin"));
  fs::copy_file(kBinary, Path("bin/trireme"));
  Process process(Path("bin/trireme"), {"eval", Path("run"), "--render", Path("a.mp4")});
  ExpectRefused(process.Wait(), {"no MP4", "libtrireme_ffmpeg.so", "`make all` installs what it needs"});
  Process gif(Path("bin/trireme"), {"eval", Path("run"), "--episodes", "1", "--render", Path("a.gif")});
  EXPECT_EQ(gif.Wait().code, 0);
}

TEST_F(RenderTest, AFullDiskIsReportedAndLeavesNothing) {
  FinishedRun("run");
  const ProcessOptions small_files{.largest_file = 1000};
  for (const char* name : {"a.gif", "frames/"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = Render(Path(name), {}, small_files);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("cannot write"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(Entries("."), 1u) << "only the run";

  fs::create_directory(Path("disk"));
  const SmallDisk disk(Path("disk"));
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  WriteText(Path("disk/filling"), std::string(SmallDisk::kBytes - 8192, 'x'));
  for (const char* name : {"disk/a.gif", "disk/frames/"}) {
    const Outcome outcome = Render(Path(name));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("No space left"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(Entries("disk"), 1u);
}

TEST_F(RenderTest, AReadOnlyDiskIsReportedAtOnce) {
  FinishedRun("run");
  fs::create_directory(Path("disk"));
  const SmallDisk disk(Path("disk"), true);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  ExpectRefused(Render(Path("disk/a.gif")), {"Read-only file system"});
  ExpectRefused(Render(Path("disk/frames/")), {"Read-only file system"});
}

TEST_F(RenderTest, ASignalLeavesNothing) {
  FinishedRun("run", {"--set", "env_max_steps=0", "--set", "eval_max_steps=200"});
  for (const char* name : {"a.gif", "frames/"}) {
    SCOPED_TRACE(name);
    // A policy that balances for long, or many that do not: more pictures than it has time for.
    Process process(kBinary, {"eval", Path("run"), "--episodes", "1", "--render", Path(name),
                              "--render-episodes", "1000"});
    // Frames are gathered in a folder beside theirs; a film is not seen before it is whole.
    const bool frames = name == std::string("frames/");
    ASSERT_TRUE(process.RunsUntil([&] { return frames ? Entries(".") > 1 : process.Catches(SIGINT); }));
    process.Signal(SIGINT);
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_NE(outcome.err.find("was not written"), std::string::npos) << outcome.err;
    EXPECT_EQ(Entries("."), 1u) << "only the run";
  }
}

TEST_F(RenderTest, TheReportHasAStripAlsoAfterAResume) {
  const Json alone = FinishedRun("alone");
  const Json run = FinishedRun("run");
  EXPECT_EQ(run["params_sha256"], alone["params_sha256"]);
  EXPECT_EQ(PicturesInReport(), 6u);
  Resume("run", {"--steps", "6000"});
  EXPECT_EQ(PicturesInReport(), 6u);
  fs::remove(Path("run/report.html"));
  Resume("run");  // has nothing left to do
  EXPECT_EQ(PicturesInReport(), 6u);
}

// What Gymnasium's own environments draw, in their host processes.
class GymRenderTest : public RenderTest {
 protected:
  void SetUp() override {
    RenderTest::SetUp();
    for (const char* module : {"gymnasium", "pygame"}) {
      if (const std::string missing = MissingInTests(module); !missing.empty()) GTEST_SKIP() << missing;
    }
    ::setenv("TRIREME_PYTHON", TestPython().c_str(), 1);
  }
  // Of a PNG file, from its first chunk.
  static std::pair<int, int> SizeOf(const std::string& png) {
    const auto number = [&](std::size_t at) {
      int value = 0;
      for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(png.at(i));
      return value;
    };
    return {number(16), number(20)};
  }
};

TEST_F(GymRenderTest, FramesAndFilmsShowWhatGymnasiumDraws) {
  ResultOf(RunTrireme({"train",
                       "--env",
                       "gym:CartPole-v1",
                       "--out",
                       Path("run"),
                       "--workers",
                       "1",
                       "--json",
                       "--env-hosts",
                       "2",
                       "--steps",
                       "2048",
                       "--set",
                       "envs=8",
                       "--set",
                       "horizon=32",
                       "--set",
                       "hidden=[16]",
                       "--set",
                       "eval_every=0",
                       "--set",
                       "eval_episodes=2",
                       "--set",
                       "env_max_steps=40"}));
  EXPECT_EQ(PicturesInReport(), 6u);

  const Outcome frames = Render(Path("frames/"));
  ASSERT_EQ(frames.code, 0) << frames.err;
  const std::vector<int> steps = StepsSaid(frames);
  ASSERT_EQ(steps.size(), 1u) << frames.out;
  EXPECT_EQ(Entries("frames"), static_cast<std::size_t>(steps[0]) + 1);
  const std::string first = ReadText(Path("frames/000000.png"));
  EXPECT_EQ(SizeOf(first), (std::pair{600, 400}));
  EXPECT_NE(first, ReadText(Path(fmt::format("frames/{:06}.png", steps[0])))) << "nothing has moved";
  const Json eval = ResultOf(RunTrireme({"eval", Path("run"), "--episodes", "1", "--json"}));
  EXPECT_EQ(eval["eval_return_mean"], steps[0]) << "another episode than the evaluation's";

  const Outcome film = Render(Path("a.gif"), {"--render-episodes", "2"});
  ASSERT_EQ(film.code, 0) << film.err;
  ASSERT_EQ(StepsSaid(film).size(), 2u);
  EXPECT_EQ(StepsSaid(film)[0], steps[0]);
  EXPECT_EQ(ReadText(Path("a.gif")).substr(0, 6), "GIF89a");
#ifdef TRIREME_HAS_FFMPEG
  // Pictures that are the same are one that is shown for longer.
  const Decoded decoded = DecodeFile(Path("a.gif"));
  EXPECT_NEAR(decoded.duration_s, (StepsSaid(film)[0] + StepsSaid(film)[1] + 2) / 50.0, 1e-3);
  EXPECT_EQ(decoded.pictures.front().width, 600);
  EXPECT_NE(decoded.pictures.front(), decoded.pictures.back());
#endif
}

}  // namespace
}  // namespace trireme::testing
