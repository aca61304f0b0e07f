// What the tests of environments in host processes share. They need a Python with NumPy, those of GymnasiumTest also
// Gymnasium. Without it they are shown as skipped.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/env/checked_batch.h"
#include "trireme/env/gym/test_python.h"
#include "trireme/env/registry.h"

namespace trireme {

class GymTest : public testing::Test {
 protected:
  using Options = std::vector<std::pair<std::string, std::string>>;

  void SetUp() override {
    if (const std::string missing = MissingInTests("numpy"); !missing.empty()) GTEST_SKIP() << missing;
    ::setenv("TRIREME_PYTHON", TestPython().c_str(), 1);
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("trireme_gym_{}_{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  static std::string File(const std::string& name) { return std::string(TRIREME_PYTHON_ENVS) + "/" + name; }
  static std::string InTrouble(const std::string& name) { return "py:" + File("trouble.py") + ":" + name; }
  static EnvEntry Find(const std::string& name, const Options& options = {}, const EnvArgs& args = {}) {
    Options all = options;
    bool hosts = false;
    for (const auto& [key, value] : options) hosts = hosts || key == "hosts";
    if (!hosts) all.emplace_back("hosts", "2");
    return FindEnv(name, all, args);
  }
  // Of class Trouble.
  EnvEntry FindTrouble(const std::string& what, const Options& options = {}, EnvArgs args = {}) {
    args.push_back({"what", what});
    args.push_back({"where", (folder_ / "made").string()});
    return Find(InTrouble("Trouble"), options, args);
  }
  std::string Once() const { return (folder_ / "once").string(); }
  // Processes that have made copies of class Trouble, in this order.
  std::vector<pid_t> Makers() const {
    std::vector<pid_t> pids;
    const std::string text = ReadFile(folder_ / "made");
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      pids.push_back(std::stoi(text.substr(at)));
    return pids;
  }

  static std::string ErrorOf(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static void ExpectIn(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
  }
  static bool Eventually(const std::function<bool()>& condition, double seconds = 60) {
    for (const double since_s = MonotonicSeconds(); MonotonicSeconds() - since_s < seconds; ::usleep(5000)) {
      if (condition()) return true;
    }
    return false;
  }
  static bool Exists(pid_t pid) { return std::filesystem::exists(fmt::format("/proc/{}", pid)); }

  std::filesystem::path folder_;
};

class GymnasiumTest : public GymTest {
 protected:
  void SetUp() override {
    if (const std::string missing = MissingInTests("gymnasium"); !missing.empty()) GTEST_SKIP() << missing;
    GymTest::SetUp();
  }
};

}  // namespace trireme
