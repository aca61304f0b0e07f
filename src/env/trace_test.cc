// Replays episodes recorded from Gymnasium (python/gym_traces.py) and compares every observation, reward and
// end. TRIREME_ENV_TRACES in the environment names another folder of traces (python/compare_gymnasium.py uses
// that).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "trireme/env/batch.h"

namespace trireme {
namespace {

constexpr double kTolerance = 1e-6;
constexpr int kCopies = 8;
constexpr int kWatched = 5;  // any lane will do

// Plays the episode in every copy and compares one of them.
void Replay(const EnvEntry& entry, const nlohmann::json& episode) {
  const std::unique_ptr<EnvBatch> batch = entry.make(kCopies);
  batch->Reset(1, Purpose::kTest, 0);
  const auto set_state = [&](const std::vector<double>& state) {
    for (int i = 0; i < kCopies; ++i) dynamic_cast<SettableBatch&>(*batch).SetState(i, state);
  };
  set_state(episode.at("start"));
  const std::vector<float> actions = episode.at("actions");
  for (std::size_t t = 0; t < actions.size(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    if (const std::string step = std::to_string(t);
        episode.value("resync", nlohmann::json::object()).contains(step)) {
      set_state(episode.at("resync").at(step));
    }
    batch->Step(std::vector<float>(kCopies, actions[t]));

    const bool last = t + 1 == actions.size();
    const bool terminated = episode.at("terminated");
    ASSERT_EQ(batch->terminated()[kWatched], last && terminated);
    ASSERT_EQ(batch->truncated()[kWatched], last && !terminated);
    const double reward = episode.at("rewards").at(t);
    ASSERT_NEAR(batch->rewards()[kWatched], reward, kTolerance * std::max(1.0, std::abs(reward)));
    const std::span<const float> obs = FloatObs(last ? batch->final_obs() : batch->obs());
    for (int k = 0; k < entry.spec.obs.size(); ++k) {
      const double expected = episode.at("obs").at(t).at(k);
      ASSERT_NEAR(obs[kWatched * entry.spec.obs.size() + k], expected,
                  kTolerance * std::max(1.0, std::abs(expected)))
          << "observation " << k;
    }
  }
}

std::filesystem::path TraceFolder() {
  const char* other = std::getenv("TRIREME_ENV_TRACES");
  return other != nullptr ? other : TRIREME_ENV_TRACES;
}

// The environments that Gymnasium has, too: for these a trace must be there.
const std::set<std::string> kGymnasiumEnvs = {"CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0",
                                              "Acrobot-v1", "Pendulum-v1"};

TEST(Traces, AgreeWithGymnasium) {
  for (const EnvEntry& entry : AllEnvs()) {
    const auto path = TraceFolder() / (entry.spec.name + ".json");
    std::ifstream file(path);
    if (!file && !kGymnasiumEnvs.contains(entry.spec.name)) continue;  // has no reference implementation
    ASSERT_TRUE(file) << "cannot read " << path;
    const auto trace = nlohmann::json::parse(file);
    bool terminated = false, truncated = false;
    for (std::size_t i = 0; i < trace.at("episodes").size(); ++i) {
      SCOPED_TRACE(entry.spec.name + " episode " + std::to_string(i));
      const nlohmann::json& episode = trace.at("episodes")[i];
      Replay(entry, episode);
      (episode.at("terminated").get<bool>() ? terminated : truncated) = true;
    }
    // Fresh random episodes may happen not to contain both; the recorded ones must.
    if (std::getenv("TRIREME_ENV_TRACES") != nullptr) continue;
    EXPECT_TRUE(truncated) << entry.spec.name << ": no episode runs into the time limit";
    EXPECT_TRUE(terminated || entry.spec.name == "Pendulum-v1")
        << entry.spec.name << ": no episode terminates";
  }
}

}  // namespace
}  // namespace trireme
