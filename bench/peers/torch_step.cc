// Times one training step (forward, mean-square loss, backward, Adam) of small networks in libtorch on one
// thread and prints a JSON line per network and batch size: what libtorch, driven from C++, reaches for the
// work Trireme's own kernels do. Run with a number of seconds per line (default 0.5).
//
// FLOPs count what cannot be avoided: per weight and sample 2 forward and 4 backward, 2 in the first layer,
// whose input needs no gradient. Biases, activations, loss and Adam are not counted.

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Shape {
  const char* name;
  std::vector<std::vector<int>> towers;  // the layer widths of each tower; all read the same input
  bool tanh;                             // else ReLU
  std::vector<int> batches;
};

torch::nn::Sequential MakeTower(const std::vector<int>& widths, bool tanh) {
  torch::nn::Sequential tower;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    tower->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
    if (i + 2 == widths.size()) break;
    if (tanh) {
      tower->push_back(torch::nn::Tanh());
    } else {
      tower->push_back(torch::nn::ReLU());
    }
  }
  return tower;
}

double FlopsPerSample(const Shape& shape) {
  double flops = 0;
  for (const auto& widths : shape.towers) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) flops += (i == 0 ? 4.0 : 6.0) * widths[i] * widths[i + 1];
  }
  return flops;
}

// The median over rounds of the mean time of a step, which other load on the machine disturbs least.
double StepSeconds(const Shape& shape, int batch, double budget) {
  torch::manual_seed(1);
  std::vector<torch::nn::Sequential> towers;
  std::vector<torch::Tensor> parameters, targets;
  for (const auto& widths : shape.towers) {
    towers.push_back(MakeTower(widths, shape.tanh));
    for (auto& p : towers.back()->parameters()) parameters.push_back(p);
    targets.push_back(torch::randn({batch, widths.back()}));
  }
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(1e-3));
  const torch::Tensor input = torch::randn({batch, shape.towers[0][0]});

  const auto step = [&] {
    adam.zero_grad();
    torch::Tensor loss;
    for (size_t i = 0; i < towers.size(); ++i) {
      const torch::Tensor one = torch::mse_loss(towers[i]->forward(input), targets[i]);
      loss = i == 0 ? one : loss + one;
    }
    loss.backward();
    adam.step();
  };

  for (int i = 0; i < 20; ++i) step();
  auto start = Clock::now();
  step();
  constexpr int kRounds = 7;
  const int steps = std::max(1, static_cast<int>(budget / kRounds / Seconds(start, Clock::now())));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    start = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    rounds.push_back(Seconds(start, Clock::now()) / steps);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

// Debian's libtorch takes whatever libblas the system provides. OpenBLAS keeps threads of its own, which
// at::set_num_threads does not reach; without OpenBLAS the figures are of the slow reference BLAS and say so.
bool PinOpenBlas() {
  using SetThreads = void (*)(int);
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
  return set_threads != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  if (budget <= 0) {
    std::fprintf(stderr, "usage: torch_step [seconds per line]\n");
    return 2;
  }
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  const char* blas = PinOpenBlas() ? "openblas" : "other";
  const std::vector<Shape> shapes = {
      {"4-64-64-{2,1} tanh", {{4, 64, 64, 2}, {4, 64, 64, 1}}, true, {64, 256, 1024, 4096}},
      {"17-256-256-6 relu", {{17, 256, 256, 6}}, false, {64, 256, 1024}},
  };
  for (const Shape& shape : shapes) {
    for (int batch : shape.batches) {
      const double seconds = StepSeconds(shape, batch, budget);
      std::printf(
          "{\"peer\":\"torch\",\"network\":\"%s\",\"batch\":%d,\"us\":%.1f,\"gflops\":%.2f,\"blas\":\"%s\"}"
          "\n",
          shape.name, batch, seconds * 1e6, FlopsPerSample(shape) * batch / seconds / 1e9, blas);
      std::fflush(stdout);
    }
  }
}
