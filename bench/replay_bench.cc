// Microseconds to draw a batch of 256 from a replay buffer of a million transitions of CartPole's shape, on
// one core: prioritised (sample, gather, update the priorities) against uniform (sample, gather).
//
// Every repetition draws other slots. Between two of them a few megabytes are read, as a learner would, so
// that nothing of the previous batch is left in the caches nearest to the core.
//
//   replay_bench [repetitions, default 2000]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/aligned.h"
#include "base/rng.h"
#include "replay/replay_buffer.h"
#include "replay/sampler.h"
#include "timing.h"

namespace trireme {
namespace {

constexpr std::size_t kTransitions = 1'000'000, kBatch = 256;
constexpr int kObs = 4, kAction = 1;

struct Bench {
  Bench()
      : buffer(kTransitions, kObs, kAction),
        sampler(kTransitions, 0.6, 1e-3),
        batch(kBatch, kObs, kAction),
        slots(kBatch),
        weights(kBatch),
        errors(kBatch),
        learner(1 << 20) {
    RandomStream random(1, Purpose::kTest, 0, 0);
    const float obs[kObs] = {}, action[kAction] = {};
    std::vector<std::uint32_t> all(kTransitions);
    std::vector<float> first_errors(kTransitions);
    for (std::size_t i = 0; i < kTransitions; ++i) {
      all[i] = static_cast<std::uint32_t>(
          buffer.Add({.obs = obs, .next_obs = obs, .actions = action, .ret = 1, .discount = 0.99f}));
      sampler.Added(all[i]);
      first_errors[i] = static_cast<float>(random.NextNormal());
    }
    sampler.Update(all, first_errors);
  }

  // Median microseconds of run(random) over the repetitions.
  template <class Run>
  double Microseconds(int repetitions, Run&& run) {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      RandomStream random(2, Purpose::kTest, 0, step++);
      for (float& error : errors) error = static_cast<float>(random.NextNormal());
      for (const float x : learner) sink = sink + x;
      const double start = Now();
      run(random);
      times.push_back(1e6 * (Now() - start));
    }
    return Median(times);
  }

  ReplayBuffer buffer;
  PrioritisedSampler sampler;
  TransitionBatch batch;
  std::vector<std::uint32_t> slots;
  std::vector<float> weights, errors;
  AlignedBuffer<float> learner;  // what passes through the caches between two batches
  std::uint64_t step = 0;
  volatile float sink = 0;
};

void Print(int repetitions) {
  Bench b;
  const double prioritised = b.Microseconds(repetitions, [&](RandomStream& random) {
    b.sampler.Sample(random, 0.4, b.slots, b.weights);
    b.buffer.Gather(b.slots, b.batch);
    b.sampler.Update(b.slots, b.errors);
  });
  const double without_gather = b.Microseconds(repetitions, [&](RandomStream& random) {
    b.sampler.Sample(random, 0.4, b.slots, b.weights);
    b.sampler.Update(b.slots, b.errors);
  });
  const double uniform = b.Microseconds(repetitions, [&](RandomStream& random) {
    SampleUniform(random, b.buffer.size(), b.slots);
    b.buffer.Gather(b.slots, b.batch);
  });
  const auto megabytes = [](std::uint64_t bytes) { return 1e-6 * static_cast<double>(bytes); };
  fmt::print("{} of {} transitions, {} + {} MB, {}, median of {}\n", kBatch, kTransitions,
             megabytes(ReplayBuffer::Bytes(kTransitions, kObs, kAction)),
             megabytes(PrioritisedSampler::Bytes(kTransitions)), IsaName(CurrentIsa()), repetitions);
  fmt::print("prioritised: sample, gather, update {:>8.1f} us\n", prioritised);
  fmt::print("prioritised: sample, update         {:>8.1f} us\n", without_gather);
  fmt::print("uniform:     sample, gather         {:>8.1f} us\n", uniform);
  fmt::print("prioritised / uniform               {:>8.2f}\n", prioritised / uniform);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { trireme::Print(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2000); }
