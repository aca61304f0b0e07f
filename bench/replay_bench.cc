// Microseconds to draw a batch of 256 from a replay buffer of a million transitions of CartPole's shape, on
// one core: prioritised (sample, gather, update the priorities) against uniform (sample, gather).
//
// Every repetition draws other slots. "alone": one batch right after the other. "after a learner": between
// two batches a megabyte passes through the caches nearest to the core, as when a network learns from each.
//
//   replay_bench [repetitions, default 2000]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "timing.h"
#include "trireme/base/aligned.h"
#include "trireme/base/rng.h"
#include "trireme/replay/replay_buffer.h"
#include "trireme/replay/sampler.h"

namespace trireme {
namespace {

constexpr std::size_t kTransitions = 1'000'000, kBatch = 256;
constexpr int kObs = 4, kAction = 1;

struct Bench {
  Bench()
      : buffer(kTransitions, RowLayout(kObs), kAction),
        sampler(kTransitions, 0.6, 1e-3),
        batch(kBatch, RowLayout(kObs), kAction),
        slots(kBatch),
        weights(kBatch),
        errors(kBatch),
        learner(1 << 18) {
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
  double Microseconds(int repetitions, bool with_learner, Run&& run) {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      RandomStream random(2, Purpose::kTest, 0, step++);
      for (float& error : errors) error = static_cast<float>(random.NextNormal());
      if (with_learner) {
        for (const float x : learner) sink = sink + x;
      }
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
  const auto prioritised = [&](RandomStream& random) {
    b.sampler.Sample(random, 0.4, b.slots, b.weights);
    b.buffer.Gather(b.slots, b.batch);
    b.sampler.Update(b.slots, b.errors);
  };
  const auto without_gather = [&](RandomStream& random) {
    b.sampler.Sample(random, 0.4, b.slots, b.weights);
    b.sampler.Update(b.slots, b.errors);
  };
  const auto uniform = [&](RandomStream& random) {
    SampleUniform(random, b.buffer.size(), b.slots);
    b.buffer.Gather(b.slots, b.batch);
  };
  const auto megabytes = [](std::uint64_t bytes) { return 1e-6 * static_cast<double>(bytes); };
  fmt::print(
      "microseconds for {} of {} transitions ({:.1f} MB, priorities {:.1f} MB), one core, {}, median of {}\n",
      kBatch, kTransitions, megabytes(ReplayBuffer::Bytes(kTransitions, RowLayout(kObs), kAction)),
      megabytes(PrioritisedSampler::Bytes(kTransitions)), IsaName(CurrentIsa()), repetitions);
  fmt::print("{:<18}{:>22}{:>18}{:>18}{:>24}\n", "", "sample+gather+update", "sample+update",
             "uniform+gather", "prioritised / uniform");
  for (const bool with_learner : {false, true}) {
    const double a = b.Microseconds(repetitions, with_learner, prioritised);
    const double u = b.Microseconds(repetitions, with_learner, uniform);
    const double w = b.Microseconds(repetitions, with_learner, without_gather);
    fmt::print("{:<18}{:>22.1f}{:>18.1f}{:>18.1f}{:>24.2f}\n", with_learner ? "after a learner" : "alone", a,
               w, u, a / u);
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { trireme::Print(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2000); }
