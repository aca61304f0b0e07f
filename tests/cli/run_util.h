// What tests of the command line share: running it, and looking at what it left.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"

namespace trireme::testing {

using Args = std::vector<std::string>;
using Json = nlohmann::json;

inline constexpr const char* kBinary = TRIREME_BINARY;

Args operator+(Args left, const Args& right);

// Runs the program to its end.
Outcome RunTrireme(const Args& args, const ProcessOptions& options = {});

// The last line of a `--json` command that ended with `code`. Anything else fails the test and gives an empty
// object.
Json ResultOf(const Outcome& outcome, int code = 0);

// Expects a clean refusal: a non-zero exit code, nothing on standard output and exactly one line on standard
// error, which contains every one of `parts`.
void ExpectRefused(const Outcome& outcome, const std::vector<std::string>& parts);

std::string ReadText(const std::filesystem::path& path);
void WriteText(const std::filesystem::path& path, const std::string& content);

// Every file below a folder with its content: equal before and after means nothing was touched.
std::map<std::string, std::string> Snapshot(const std::filesystem::path& folder);

// `args` with --set for each of "key=value", in place of an earlier one for the same key.
Args Set(Args args, const std::vector<std::string>& assignments);

// The rows of metrics.jsonl without what depends on the clock.
std::vector<Json> TimelessRows(const std::filesystem::path& run);

// Newest first.
std::vector<std::filesystem::path> Checkpoints(const std::filesystem::path& run);

// A temporary file system of one mebibyte on an empty folder, unmounted at the end of the scope.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& folder, bool read_only = false);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // False where this user may not mount.
  bool mounted() const { return mounted_; }
  static constexpr std::size_t kBytes = 1 << 20;

 private:
  std::string folder_;
  bool mounted_;
};

// A test with a folder of its own, which is removed after it passed.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // A small CartPole run into Path(name), with 10 iterations of 512 steps.
  Args SmallRun(const std::string& name) const;
  // The same, finished; expects success.
  Json FinishedRun(const std::string& name, const Args& more = {}) const;
  // A small CartPole run of "a2c" or "dqn" into Path(name): 8 iterations of 512 steps, evaluated after every
  // second. DQN has prioritised n-step replay that is overwritten several times.
  Args SmallRunOf(const std::string& algo, const std::string& name) const;
  // Continues the run in Path(name) to its end; expects success.
  Json Resume(const std::string& name, const Args& more = {}) const;
  // Runs `args` of a name once as they are, and once interrupted by SIGTERM in the middle and resumed: expects the same
  // bits and rows.
  void ExpectGoesOnExactly(const std::function<Args(const std::string& name)>& args) const;
  // Whole lines of its metrics.jsonl; 0 while there is none.
  std::size_t MetricLines(const std::string& name) const;

  std::filesystem::path folder_;
};

}  // namespace trireme::testing
