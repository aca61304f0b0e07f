// What the program finds around itself is not always as it should be: descriptors, temporary files, folders.

#include <pwd.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class SurroundingsTest : public CliTest {
 protected:
  Args ForPeople(Args args) const {
    args.erase(std::find(args.begin(), args.end(), "--json"));
    return args;
  }
  std::vector<fs::path> TemporaryFiles() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(Path("tmp"))) paths.push_back(entry.path());
    return paths;
  }
  ProcessOptions OwnTemporaryFiles() const {
    fs::create_directories(Path("tmp"));
    return {.variables = {"TMPDIR=" + Path("tmp")}};
  }
};

TEST_F(SurroundingsTest, WithoutDescriptorsNothingStrayLandsInFiles) {
  const Outcome outcome = RunTrireme(ForPeople(SmallRun("run")), {.no_descriptors = true});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(TimelessRows(Path("run")).size(), 10u);
  const Json result = FinishedRun("other");
  EXPECT_EQ(Json::parse(ReadText(Path("run/result.json")))["params_sha256"], result["params_sha256"]);
  EXPECT_EQ(ReadText(Path("run/config.toml")), ReadText(Path("other/config.toml")));
  EXPECT_EQ(RunTrireme({"eval", Path("run")}, {.no_descriptors = true}).code, 0);
}

TEST_F(SurroundingsTest, WithoutAHomeNothingIsInstalledWhereTheProgramIsStarted) {
  fs::create_directories(Path("bin"));
  fs::create_directories(Path("here"));
  WriteText(Path("bin/python3"), "#!/bin/sh\nexit 1\n");  // whatever it is asked
  fs::permissions(Path("bin/python3"), fs::perms::owner_all);
  const auto set_up = [&](const std::string& home) {
    const Outcome outcome = RunTrireme(
        {"setup", "python"},
        {.variables = {"XDG_DATA_HOME", home, "PATH=" + Path("bin") + ":/bin"}, .folder = Path("here")});
    EXPECT_TRUE(fs::is_empty(Path("here")));
    return outcome;
  };
  ExpectRefused(set_up("HOME=over/there"), {"no home folder", "HOME"});
  const passwd* const user = ::getpwuid(::getuid());
  const fs::path known = user == nullptr ? "" : user->pw_dir;
  if (known.empty() || fs::exists(known / ".local/share/trireme"))
    GTEST_SKIP() << "this user has one already";
  for (const char* none : {"HOME", "HOME="}) {
    ExpectRefused(set_up(none), {"this has failed: python3 -m venv " + known.string() + "/.local/share"});
  }
}

TEST_F(SurroundingsTest, AResumeThatCannotOpenAFileChangesNothing) {
  FinishedRun("run");
  fs::remove(Path("run/metrics.jsonl"));
  fs::create_directory(Path("run/metrics.jsonl"));
  const auto before = Snapshot(Path("run"));
  ExpectRefused(RunTrireme({"train", "--resume", Path("run"), "--steps", "6144", "--json"}),
                {Path("run/metrics.jsonl")});
  EXPECT_EQ(Snapshot(Path("run")), before);
}

TEST_F(SurroundingsTest, AReadOnlyRunIsRefusedInOneLineAndCanBeEvaluated) {
  const SmallDisk disk(Path("disk"));
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs more rights than this user has";
  FinishedRun("disk/run", {"--target", "1"});
  ASSERT_EQ(::mount("tmpfs", Path("disk").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
  for (const Args& more :
       {Args{"--target", "1e6"}, Args{"--target", "1e6", "--store", "server", "--servers", "1"}})
    ExpectRefused(RunTrireme(Args{"train", "--resume", Path("disk/run"), "--json"} + more),
                  {Path("disk/run"), "Read-only file system"});
  EXPECT_EQ(ResultOf(RunTrireme({"eval", Path("disk/run"), "--json"}))["steps"], 2048);
}

TEST_F(SurroundingsTest, AWorkingFolderThatCannotBeWrittenIsCalledThat) {
  Args args = SmallRun("unused");
  const auto out = std::find(args.begin(), args.end(), "--out");
  args.erase(out, out + 2);
  const SmallDisk disk(Path("here"), /*read_only=*/true);
  if (!disk.mounted()) fs::permissions(Path("here"), fs::perms::owner_read | fs::perms::owner_exec);
  const ProcessOptions here{.folder = Path("here")};
  ExpectRefused(RunTrireme(args, here),
                {"runs", disk.mounted() ? "Read-only file system" : "Permission denied"});
}

TEST_F(SurroundingsTest, TemporaryFilesThatHaveNoFolder) {
  for (const std::string& tmp : {Path("none"), std::string("/dev/null")}) {
    ExpectRefused(RunTrireme(SmallRun("run") + Args{"--store", "server", "--servers", "1"},
                             {.variables = {"TMPDIR=" + tmp}}),
                  {"TMPDIR", tmp});
    EXPECT_FALSE(fs::exists(Path("run")));
  }
}

TEST_F(SurroundingsTest, WhatAKilledRunLeavesTheNextOneRemoves) {
  const ProcessOptions options = OwnTemporaryFiles();
  fs::create_directories(Path("tmp/trireme-mine"));
  const Args servers = {"--store", "server", "--servers", "1"};
  const auto endless = [&](const std::string& name) {
    Args args = SmallRun(name);
    *std::find(args.begin(), args.end(), "5120") = "1000000000";
    return args + servers;
  };
  {
    Process alive(kBinary, endless("alive"), options);
    ASSERT_TRUE(alive.RunsUntil([&] { return MetricLines("alive") >= 1; }));
    Process killed(kBinary, endless("killed"), options);
    ASSERT_TRUE(killed.RunsUntil([&] { return MetricLines("killed") >= 1; }));
    EXPECT_EQ(TemporaryFiles().size(), 3u);
    killed.Signal(SIGKILL);
    killed.Wait();
    EXPECT_EQ(TemporaryFiles().size(), 3u) << "SIGKILL leaves no time to clean up";
    ResultOf(RunTrireme(SmallRun("next") + servers, options));
    EXPECT_EQ(TemporaryFiles().size(), 2u) << "one is that of a process that lives";
    alive.Signal(SIGTERM);
    alive.Wait();
  }
  EXPECT_EQ(TemporaryFiles(), std::vector<fs::path>{Path("tmp/trireme-mine")});
}

}  // namespace
}  // namespace trireme::testing
