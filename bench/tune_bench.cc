// What the samplers of `trireme tune` find, and how long they take, as JSON; bench/tune_samplers.py puts it beside Optuna.
//   tune_bench [repetitions [trials [history [first seed]]]]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "trireme/base/system.h"
#include "trireme/tune/test_functions.h"

int main(int argc, char** argv) {
  using namespace trireme;
  using namespace trireme::testing;
  const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int repetitions = argument(1, 30), trials = argument(2, 100), known = argument(3, 1000),
            first = argument(4, 1);
  fmt::print("{{");
  const char* between = "";
  for (const char* method : {"random", "tpe", "cmaes"}) {
    for (const TestFunction& function : TestFunctions()) {
      std::vector<double> best;
      for (int seed = first; seed < first + repetitions; ++seed) {
        const auto sampler = MakeSampler(method, function.space, {.seed = static_cast<std::uint64_t>(seed)});
        best.push_back(RunSearch(function, *sampler, trials, static_cast<std::uint64_t>(seed)).best);
      }
      // A history from random points, as a study that is resumed finds it; then one proposal after the other.
      const auto random = MakeSampler("random", function.space, {});
      std::vector<PastTrial> history = RunSearch(function, *random, known, 1).history;
      const auto sampler = MakeSampler(method, function.space, {});
      std::vector<double> seconds;
      for (int i = 0; i < 20; ++i) {
        const double start = MonotonicSeconds();
        const Point point = *sampler->Propose(history, known + i, 0);
        seconds.push_back(MonotonicSeconds() - start);
        history.push_back({point, PastTrial::Outcome::kComplete, function.value(point), 0});
      }
      std::ranges::sort(seconds);
      fmt::print("{}\"{} {}\": {{\"best\": [", between, method, function.name);
      for (std::size_t i = 0; i < best.size(); ++i) fmt::print("{}{}", i > 0 ? ", " : "", best[i]);
      fmt::print("], \"proposal_s\": {}}}", seconds[seconds.size() / 2]);
      between = ", ";
    }
  }
  fmt::print("}}\n");
}
