// Two workers that compute one network together against one that computes it alone: a whole update, from samples through
// gradient, norm and Adam, in alternating rounds.
//   split_bench [seconds]
// Bars: a tensor split of a dense 4096-4096 policy at batch 256 at least 1.7 times one worker, with half the parameter
// memory; a pipeline of 4 layers of 2048 with 8 micro-batches at least 90 % of what (m + S - 1) / m stages allow.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "timing.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/nn/make_executor.h"
#include "trireme/split/part_norms.h"
#include "trireme/split/pipeline_executor.h"
#include "trireme/split/tensor_executor.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

// Random samples whose outputs are to be zero.
class Samples final : public LossSamples {
 public:
  Samples(const TowerSpec& tower, int size)
      : tower_(tower), x_(static_cast<std::size_t>(size) * tower.inputs) {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = std::sin(static_cast<float>(i));
  }
  int size() const override { return static_cast<int>(x_.size()) / tower_.inputs; }
  const float* Inputs(int first, int) override {
    return x_.data() + static_cast<std::size_t>(first) * tower_.inputs;
  }
  void Loss(int, int n, std::span<const float* const> outputs, std::span<float* const> d_outputs) override {
    for (int i = 0; i < n * tower_.outputs; ++i) d_outputs[0][i] = outputs[0][i] / static_cast<float>(size());
  }

 private:
  const TowerSpec& tower_;
  AlignedBuffer<float> x_;
};

// One worker, alone or as a member of a group.
class Updates {
 public:
  Updates(const Network& network, const Executor& executor, NormMeasure* norms,
          std::span<const float> initial, int batch)
      : store_(MakeAllReduceStore(alone_.comm(), {}, initial, norms)),
        tape_(executor.MakeTape(executor.pass_size())),
        gradient_(initial.size()),
        samples_(network.spec().towers[0], batch) {}

  void operator()() {
    std::ranges::fill(gradient_.span(), 0.0f);
    tape_->SetParams(store_->Pull());
    tape_->AddGradient(samples_, gradient_.span());
    store_->Push(gradient_.span(), {.learning_rate = 1e-6f, .max_grad_norm = 0.5});
  }

 private:
  GroupOfOne alone_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Tape> tape_;
  AlignedBuffer<float> gradient_;
  Samples samples_;
};

// Of this thread. On a machine that others use as well it says more than the clock on the wall.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of one update.
struct Seconds {
  std::vector<double> wall, processor;
};

struct Measured {
  Seconds one;
  std::vector<double> together;    // wall
  std::vector<Seconds> by_member;  // processor time
  std::vector<std::size_t> params;
  std::vector<PipelineTimes> times;

  double ratio() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < together.size(); ++i) ratios.push_back(one.wall[i] / together[i]);
    return Median(ratios);
  }
  // What the processor time of the slowest member allows.
  double processor_ratio() const {
    double slowest = 0;
    for (const Seconds& member : by_member) slowest = std::max(slowest, Median(member.processor));
    return Median(one.processor) / slowest;
  }
};

template <class Work>
void Time(Work&& work, Seconds& seconds) {
  const double wall = Now(), processor = ProcessorSeconds();
  work();
  seconds.processor.push_back(ProcessorSeconds() - processor);
  seconds.wall.push_back(Now() - wall);
}

Measured Measure(const TowerSpec& tower, const ModelSplit& split, int batch, double budget) {
  const Network network({.towers = {tower}, .free_vectors = {}});
  std::vector<float> params(network.param_count());
  for (std::size_t i = 0; i < params.size(); ++i) params[i] = 0.02f * std::sin(static_cast<float>(i));
  const auto alone = MakeExecutor(network);
  Updates one(network, *alone, nullptr, params, batch);
  const NetworkParts parts(network, split);
  Measured measured{.one = {},
                    .together = {},
                    .by_member = std::vector<Seconds>(split.members),
                    .params = std::vector<std::size_t>(split.members),
                    .times = std::vector<PipelineTimes>(split.members)};
  const double end = Now() + budget;
  ThreadGroup threads(split.members);
  const auto work = [&](int member) {
    ThreadCommunicator group(threads, member);
    const NetworkShare share(parts, group);
    PartNorms norms(share);
    std::unique_ptr<Executor> executor;
    if (split.kind == ModelSplit::Kind::kTensor) {
      executor = std::make_unique<TensorExecutor>(share);
    } else {
      executor = std::make_unique<PipelineExecutor>(share, group, measured.times[member]);
    }
    measured.params[member] = share.network().param_count();
    std::vector<float> part(share.network().param_count());
    share.Take(params, part);
    Updates together(network, *executor, &norms, part, batch);
    together();  // kernels are made, memory is touched
    if (member == 0) one();
    measured.times[member] = {.stages = measured.times[member].stages};
    for (double more = 1, round = 0; more != 0; ++round) {
      if (member == 0) Time([&] { one(); }, measured.one);
      group.Barrier();
      const double begun = Now();
      Time([&] { together(); }, measured.by_member[member]);
      group.Barrier();
      if (member == 0) measured.together.push_back(Now() - begun);
      more = Now() < end || round < 3;
      group.Broadcast(std::span(&more, 1));
    }
  };
  std::vector<std::thread> others;
  for (int member = 1; member < split.members; ++member) others.emplace_back(work, member);
  work(0);
  for (std::thread& other : others) other.join();
  return measured;
}

void PrintTensor(double budget) {
  const TowerSpec tower{.name = "policy", .inputs = 64, .hidden = {4096, 4096}, .outputs = 8};
  const Measured m = Measure(tower, {.kind = ModelSplit::Kind::kTensor, .members = 2}, 256, budget);
  const std::size_t whole = Network({.towers = {tower}, .free_vectors = {}}).param_count();
  fmt::print("tensor=2, 64-4096-4096-8, batch 256, {} rounds: one worker {:.0f} ms, two {:.0f} ms\n",
             m.together.size(), 1e3 * Median(m.one.wall), 1e3 * Median(m.together));
  fmt::print(
      "  {:.2f} times as fast (bar 1.7; by processor time {:.2f}), {:.1f} % of its parameters each (bar 50 "
      "%)\n",
      m.ratio(), m.processor_ratio(), 100.0 * static_cast<double>(m.params[0]) / static_cast<double>(whole));
}

void PrintPipeline(double budget) {
  constexpr double kStages = 2, kMicroBatches = 8;
  const TowerSpec tower{.name = "policy", .inputs = 2048, .hidden = {2048, 2048, 2048, 2048}, .outputs = 8};
  const ModelSplit split{.kind = ModelSplit::Kind::kPipeline, .members = 2, .micro_batches = 8};
  const Measured m = Measure(tower, split, static_cast<int>(kMicroBatches) * Tower::kChunk, budget);
  const double filled = kMicroBatches / (kMicroBatches + kStages - 1), allowed = kStages * filled;
  fmt::print(
      "pipeline=2,micro_batches=8, 4 layers of 2048, batch 512, {} rounds: one worker {:.0f} ms, two {:.0f} "
      "ms\n",
      m.together.size(), 1e3 * Median(m.one.wall), 1e3 * Median(m.together));
  fmt::print(
      "  {:.2f} times as fast, {:.0f} % of the {:.2f} that the bubble allows (bar 90 %; by processor time "
      "{:.0f} %)\n",
      m.ratio(), 100 * m.ratio() / allowed, allowed, 100 * m.processor_ratio() * filled / allowed);
  for (std::size_t stage = 0; stage < m.times.size(); ++stage) {
    fmt::print("  stage {}: idle {:.1f} % of its gradients, {:.1f} % by the formula\n", stage,
               100 * m.times[stage].bubble(), 100 * m.times[stage].expected_bubble());
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 20;
  trireme::PrintTensor(budget);
  trireme::PrintPipeline(budget);
}
