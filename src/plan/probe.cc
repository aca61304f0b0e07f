#include "trireme/plan/probe.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/system.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/store/shared_store.h"

namespace trireme {
namespace {

constexpr int kRepeats = 9;
constexpr double kBatchSeconds = 0.002;

// Per call, in the batch of calls that others disturbed least; a batch is long enough for the clock.
template <class Call>
double SecondsPerCall(Call&& call) {
  const auto batch = [&](int calls) {
    const double begun_s = MonotonicSeconds();
    for (int i = 0; i < calls; ++i) call();
    return MonotonicSeconds() - begun_s;
  };
  int calls = 1;
  while (batch(calls) < kBatchSeconds && calls < (1 << 24)) calls *= 2;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) least = std::min(least, batch(calls) / calls);
  return least;
}

// Keeps the compiler from leaving out what nobody looks at.
void Use(const float* values) { asm volatile("" : : "r"(values) : "memory"); }

// Seconds of one allreduce of two threads.
double ThreadsAllReduce(std::size_t floats, int calls) {
  ThreadGroup group(2);
  double seconds = 0;
  const auto body = [&](int rank) {
    ThreadCommunicator comm(group, rank);
    AlignedBuffer<float> values(floats);
    for (int i = 0; i < calls / 10 + 1; ++i) comm.AllReduceSum(values.span());
    const double begun_s = MonotonicSeconds();
    for (int i = 0; i < calls; ++i) comm.AllReduceSum(values.span());
    if (rank == 0) seconds = (MonotonicSeconds() - begun_s) / calls;
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return seconds;
}

}  // namespace

Link ProbeThreads(std::size_t floats) {
  const auto least = [](std::size_t n, int calls) {
    double seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRepeats; ++i) seconds = std::min(seconds, ThreadsAllReduce(n, calls));
    return seconds;
  };
  const double one_s = least(1, 1000);
  const int calls = static_cast<int>(std::clamp<std::size_t>(20'000'000 / floats, 5, 1000));
  const double all_s = least(floats, calls);
  const auto bytes = static_cast<double>(floats * sizeof(float));
  // Below the noise of the two figures there is no rate to be seen; a memory's is not above this.
  constexpr double kFastest = 1e12;
  return {.latency_s = one_s / 2, .bytes_per_s = std::min(kFastest, bytes / std::max(all_s - one_s, 1e-12))};
}

double ProbeAdd(std::size_t floats) {
  AlignedBuffer<float> sum(floats), more(floats);
  return SecondsPerCall([&] {
           float* __restrict to = sum.data();
           const float* __restrict from = more.data();
           for (std::size_t i = 0; i < floats; ++i) to[i] += from[i];
           Use(to);
         }) /
         static_cast<double>(floats);
}

double ProbeCopy(std::size_t floats) {
  AlignedBuffer<float> to(floats), from(floats);
  return SecondsPerCall([&] {
           std::memcpy(to.data(), from.data(), floats * sizeof(float));
           Use(to.data());
         }) /
         static_cast<double>(floats);
}

double ProbeShared(const OptimizerSettings& optimizer, std::size_t floats) {
  std::vector<float> initial(floats, 0.5f), gradient(floats);
  SharedParameters shared(optimizer, /*share_moments=*/true, initial);
  const auto store = MakeSharedStore(shared, 0, nullptr);
  return SecondsPerCall([&] {
           store->Pull();
           std::ranges::fill(gradient, 1e-3f);
           store->Push(gradient, {.learning_rate = 1e-4f, .max_grad_norm = 0.5});
         }) /
         static_cast<double>(floats);
}

}  // namespace trireme
