#include "run_util.h"

#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

namespace trireme::testing {

namespace fs = std::filesystem;

Args operator+(Args left, const Args& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Outcome RunTrireme(const Args& args, const ProcessOptions& options) {
  return Process(kBinary, args, options).Wait();
}

Json ResultOf(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << "signal " << outcome.signal << "\n" << outcome.err;
  if (outcome.code != code) return Json::object();
  EXPECT_TRUE(outcome.out.ends_with('\n'));
  const std::string text = outcome.out.substr(0, outcome.out.find_last_not_of('\n') + 1);
  const Json json = Json::parse(text.substr(text.rfind('\n') + 1), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << outcome.out;
  return json.is_object() ? json : Json::object();
}

void ExpectRefused(const Outcome& outcome, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_GT(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.ends_with('\n')) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.err.find("unexpected failure"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("internal error"), std::string::npos) << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
  }
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WriteText(const fs::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  EXPECT_TRUE(out.flush()) << "cannot write " << path;
}

std::map<std::string, std::string> Snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    files[entry.path().string()] = entry.is_regular_file() ? ReadText(entry.path()) : "";
  return files;
}

Args Set(Args args, const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const std::string key = assignment.substr(0, assignment.find('=') + 1);
    const auto earlier =
        std::find_if(args.begin(), args.end(), [&](const std::string& arg) { return arg.starts_with(key); });
    if (earlier != args.end()) {
      *earlier = assignment;
    } else {
      args = std::move(args) + Args{"--set", assignment};
    }
  }
  return args;
}

std::vector<Json> TimelessRows(const fs::path& run) {
  std::ifstream in(run / "metrics.jsonl");
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) {
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(row.is_object()) << line;
    if (!row.is_object()) continue;
    row.erase("wall_s");
    row.erase("steps_per_s");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<fs::path> Checkpoints(const fs::path& run) {
  std::vector<std::pair<long, fs::path>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") && name.ends_with(".trireme"))
      found.emplace_back(std::stol(name.substr(std::string("checkpoint-").size())), entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [steps, path] : found) paths.push_back(std::move(path));
  return paths;
}

SmallDisk::SmallDisk(const std::string& folder, bool read_only) : folder_(folder) {
  fs::create_directory(folder);
  mounted_ = ::mount("tmpfs", folder.c_str(), "tmpfs", read_only ? MS_RDONLY : 0, "size=1m") == 0;
}

SmallDisk::~SmallDisk() {
  if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
}

void CliTest::SetUp() {
  std::string pattern = (fs::path(::testing::TempDir()) / "trireme-cli-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void CliTest::TearDown() {
  std::error_code ignored;
  if (!HasFailure()) fs::remove_all(folder_, ignored);
}

// Presets change as better ones are found, so everything these tests depend on is given.
Args CliTest::SmallRun(const std::string& name) const {
  return {"train",    "--env",           "CartPole-v1",   "--steps",         "5120",
          "--set",    "envs=16",         "--set",         "horizon=32",      "--set",
          "epochs=4", "--set",           "minibatches=4", "--set",           "hidden=[64,64]",
          "--set",    "eval_episodes=8", "--set",         "eval_every=2048", "--json",
          "--out",    Path(name)};
}

Json CliTest::FinishedRun(const std::string& name, const Args& more) const {
  return ResultOf(RunTrireme(SmallRun(name) + more));
}

Args CliTest::SmallRunOf(const std::string& algo, const std::string& name) const {
  const Args run = {"train", "--env", "CartPole-v1", "--algo", algo, "--json", "--out", Path(name)};
  const Args common = Set(run, {"steps=4096", "envs=8", "hidden=[16]", "shards=8", "learning_rate=1e-3",
                                "learning_rate_schedule=linear", "eval_every=1024", "eval_episodes=8",
                                "checkpoint_every_s=1000"});
  if (algo == "dqn") {
    return Set(common, {"horizon=2", "rounds=32", "updates=1", "batch=32", "replay=1024",
                        "learning_starts=256", "prioritised=true", "n_step=3", "target_every=10",
                        "target_tau=1", "exploration_fraction=0.5"});
  }
  return Set(common, {"horizon=16", "rounds=4", "optimizer=adam", "gae_lambda=0.95", "value_learning_rate=0",
                      "normalise_advantages=true"});
}

Json CliTest::Resume(const std::string& name, const Args& more) const {
  return ResultOf(RunTrireme(Args{"train", "--resume", Path(name), "--json"} + more));
}

void CliTest::ExpectGoesOnExactly(const std::function<Args(const std::string& name)>& args) const {
  const Json whole = ResultOf(RunTrireme(args("whole")));
  Process process(kBinary, args("cut") + Args{"--straggler", "worker=0,factor=40"});
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 3; }));
  process.Signal(SIGTERM);
  const Json partial = ResultOf(process.Wait(), 128 + SIGTERM);
  EXPECT_LT(partial["steps"], whole["steps"]);
  EXPECT_EQ(Resume("cut")["params_sha256"], whole["params_sha256"]);
  EXPECT_EQ(TimelessRows(Path("cut")), TimelessRows(Path("whole")));
}

std::size_t CliTest::MetricLines(const std::string& name) const {
  std::error_code missing;
  const fs::path path = fs::path(Path(name)) / "metrics.jsonl";
  if (!fs::exists(path, missing)) return 0;
  const std::string text = ReadText(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace trireme::testing
