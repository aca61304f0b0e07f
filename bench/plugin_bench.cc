// What a plug-in costs: CartPole of examples/plugin_cpp beside the built-in one, stepping alone and in a training by PPO, one
// core. Both are measured in turns, by processor time, since neighbours disturb the clock; the ratio is the median of those
// of neighbouring turns. The bar is 95 %.
//
//   plugin_bench <libcart_pole.so>
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "timing.h"
#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/env/registry.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

constexpr int kTurns = 15;

class Stepping {
 public:
  explicit Stepping(const EnvEntry& env) : batch_(env.make(kCopies)) {
    batch_->Reset(1, Purpose::kTest, 0);
    RandomStream random(1, Purpose::kTest, 0, 0);
    for (std::vector<float>& actions : actions_) {
      for (int i = 0; i < kCopies; ++i) actions.push_back(static_cast<float>(random.NextBelow(2)));
    }
  }
  double StepsPerSecond() {
    const double start = CpuSeconds();
    int steps = 0;
    for (; steps < 4000; ++steps) batch_->Step(actions_[steps % actions_.size()]);
    return static_cast<double>(steps) * kCopies / (CpuSeconds() - start);
  }

 private:
  static constexpr int kCopies = 1024;
  std::unique_ptr<EnvBatch> batch_;
  std::array<std::vector<float>, 16> actions_;
};

class Training {
 public:
  explicit Training(std::string env) : env_(std::move(env)) {}
  double StepsPerSecond() const {
    RunSettings settings(env_, "ppo");
    settings.fields.ApplyToml(R"(
      workers = 1
      steps = 500_000
      eval_every = 0
      eval_episodes = 1
      envs = 64
      horizon = 32
      epochs = 6
      minibatches = 8
      learning_rate = 2.5e-3
      hidden = [32, 32]
    )",
                              "plugin_bench");
    settings.Resolve();
    SilentObserver observer;
    const double start = CpuSeconds();
    Train(settings, observer);
    return 500'000 / (CpuSeconds() - start);
  }

 private:
  std::string env_;
};

template <class Side>
void Compare(const char* what, Side built_in, Side plugin) {
  std::vector<double> ratios, speeds;
  for (int turn = 0; turn <= kTurns; ++turn) {
    const bool first = turn % 2 == 0;  // whoever comes first has the same chances
    const double before = first ? built_in.StepsPerSecond() : plugin.StepsPerSecond();
    const double after = first ? plugin.StepsPerSecond() : built_in.StepsPerSecond();
    if (turn == 0) continue;
    speeds.push_back(first ? before : after);
    ratios.push_back(first ? after / before : before / after);
  }
  fmt::print(
      "{:<36} built-in {:>7.2f} million steps/s of processor time, plug-in {:>5.1f} % of it (bar: 95 %)\n",
      what, Median(speeds) * 1e-6, 100 * Median(ratios));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 2) {
    fmt::print(stderr, "usage: plugin_bench <libcart_pole.so>\n");
    return 2;
  }
  const std::string plugin = fmt::format("plugin:{}", argv[1]);
  Compare("stepping 1024 copies", Stepping(FindEnv("CartPole-v1")), Stepping(FindEnv(plugin)));
  Compare("training by PPO", Training("CartPole-v1"), Training(plugin));
}
