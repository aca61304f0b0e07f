// What tests share that train small runs in folders.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/trainer.h"

namespace trireme {

using Assignments = std::vector<std::string>;

inline bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

// The message of the Error that act() throws; empty where it throws none.
template <class Act>
std::string RefusalOf(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Of two runs, without what depends on time. NaN equals NaN.
inline void ExpectSameRows(const RunFolder& a, const RunFolder& b) {
  const std::vector<MetricRow> left = ReadJsonl(a.metrics()), right = ReadJsonl(b.metrics());
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].step(), right[i].step());
    ASSERT_EQ(left[i].values().size(), right[i].values().size());
    for (const auto& [name, value] : left[i].values()) {
      if (name == "steps_per_s") continue;
      const double other = right[i].Get(name);
      EXPECT_TRUE(value == other || (std::isnan(value) && std::isnan(other))) << name << " of row " << i;
    }
  }
}

// A test with a place for runs.
class RunsTest : public testing::Test {
 protected:
  // With all the assignments in their order, and resolved.
  static std::unique_ptr<RunSettings> SettingsOf(const std::string& env, const std::string& algo,
                                                 const std::string& store,
                                                 const std::vector<Assignments>& assignments) {
    auto settings = std::make_unique<RunSettings>(env, algo, store);
    for (const Assignments& some : assignments) {
      for (const std::string& a : some) settings->fields.ApplyAssignment(a, "test");
    }
    settings->Resolve();
    return settings;
  }
  RunFolder Folder(const std::string& name, const RunSettings& settings) const {
    return RunFolder::Create(root_.path() / name, "", settings.fields.ToToml());
  }
  std::filesystem::path PathOf(const std::string& name) const { return root_.path() / name; }
  static TrainResult Go(const RunSettings& settings, const RunFolder& folder,
                        const std::atomic<bool>* stop = nullptr) {
    return Train(settings, folder, {.json = true, .stop = stop});
  }
  static std::string Refusal(const RunSettings& settings, const RunFolder& folder) {
    return RefusalOf([&] { Go(settings, folder); });
  }

 private:
  ScratchFolder root_;
};

}  // namespace trireme
