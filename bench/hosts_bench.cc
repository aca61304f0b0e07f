// Steps per second of an environment in host processes: two groups, one on its way while the other is given random actions.
//
//   hosts_bench gym:CartPole-v1 [hosts [environments [seconds]]]
//
// bench/hosts.py compares it with bare loops and with Gymnasium's AsyncVectorEnv.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/env/checked_batch.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

std::vector<float> RandomActions(const EnvBatch& batch, std::uint64_t step) {
  const ActionSpace& space = batch.spec().action;
  std::vector<float> actions(static_cast<std::size_t>(batch.size()) * space.size());
  RandomStream random(1, Purpose::kTest, 0, step);
  for (std::size_t k = 0; k < actions.size(); ++k) {
    const std::size_t part = k % space.size();
    actions[k] = space.box() ? space.low[part] + (space.high[part] - space.low[part]) *
                                                     static_cast<float>(random.NextUniform())
                             : static_cast<float>(random.NextBelow(space.parts[part]));
  }
  return actions;
}

double StepsPerSecond(const std::string& name, const std::string& hosts, int envs, double seconds) {
  const std::vector<std::pair<std::string, std::string>> options = {{"hosts", hosts}};
  const EnvEntry env = FindEnv(name, options);
  std::array<std::unique_ptr<EnvBatch>, 2> groups;
  for (int g = 0; g < 2; ++g) {
    groups[g] = MakeBatch(env, envs / 2, 1, Purpose::kTest, static_cast<std::uint32_t>(g * envs / 2));
    groups[g]->StepBegin(RandomActions(*groups[g], 0));
  }
  std::int64_t steps = 0;
  const double begun_s = MonotonicSeconds();
  double now_s = begun_s;
  for (std::uint64_t t = 1; now_s - begun_s < seconds; ++t) {
    EnvBatch& group = *groups[t % 2];
    group.StepEnd();
    steps += group.size();
    group.StepBegin(RandomActions(group, t));
    now_s = MonotonicSeconds();
  }
  for (const auto& group : groups) group->StepEnd();
  return static_cast<double>(steps) / (now_s - begun_s);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: hosts_bench gym:NAME [hosts [environments [seconds]]]\n");
    return 2;
  }
  try {
    const auto number = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
    fmt::print("{}\n", trireme::StepsPerSecond(argv[1], number(2, "0"), std::atoi(number(3, "64")),
                                               std::atof(number(4, "2"))));
  } catch (const std::exception& error) {
    fmt::print(stderr, "hosts_bench: {}\n", error.what());
    return 2;
  }
}
