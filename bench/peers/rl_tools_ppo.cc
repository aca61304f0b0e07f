// Times rl_tools (the header-only C++ library) at the work Trireme does, on one thread with OpenBLAS, and
// prints JSON lines: its PPO on Pendulum from the first rollout to the last update, and one training step
// (forward, mean-square loss gradient, backward, Adam) of two small networks. Every size is a compile-time
// constant there, so the settings are too. FLOPs are counted as in torch_step.cc.
//
// usage: rl_tools_ppo [PPO iterations to time, of 4096 environment steps each; default 150]

// rl_tools' templates look up only what is declared before them, so the order below matters.
// clang-format off
#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>
#include <rl_tools/nn/layers/standardize/operations_generic.h>
#include <rl_tools/rl/environments/pendulum/operations_cpu.h>
#include <rl_tools/nn_models/mlp/operations_generic.h>
#include <rl_tools/nn_models/mlp_unconditional_stddev/operations_generic.h>
#include <rl_tools/nn_models/sequential/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/operations_generic.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/config.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/operations_generic.h>
// clang-format on

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

extern "C" void openblas_set_num_threads(int threads);  // cblas.h would clash with rl_tools' own declarations

namespace {

namespace rlt = rl_tools;
using Device = rlt::devices::DEVICE_FACTORY<>;
static_assert(Device::DEVICE_ID == rlt::devices::DeviceId::CPU_OPENBLAS, "build with the OpenBLAS backend");
using Rng = Device::SPEC::RANDOM::ENGINE<>;
using Index = Device::index_t;
using Policy = rlt::numeric_types::Policy<float>;
using Activation = rlt::nn::activation_functions::ActivationFunction;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// ---- PPO on Pendulum

using Pendulum = rlt::rl::environments::Pendulum<rlt::rl::environments::pendulum::Specification<
    float, Index, rlt::rl::environments::pendulum::DefaultParameters<float>>>;

// Names in capitals are the ones rl_tools looks for; the networks keep its default of two hidden ReLU layers
// of 64, the optimizer its default learning rate of 1e-3.
struct PpoSettings : rlt::rl::algorithms::ppo::loop::core::DefaultParameters<Policy, Index, Pendulum> {
  static constexpr Index N_ENVIRONMENTS = 4;
  static constexpr Index ON_POLICY_RUNNER_STEPS_PER_ENV = 1024;
  static constexpr Index DATASET_SIZE = N_ENVIRONMENTS * ON_POLICY_RUNNER_STEPS_PER_ENV;
  static constexpr Index BATCH_SIZE = 256;
  static constexpr Index EPISODE_STEP_LIMIT = Pendulum::EPISODE_STEP_LIMIT;
  struct PPO_PARAMETERS : rlt::rl::algorithms::ppo::DefaultParameters<Policy, Index, BATCH_SIZE> {
    static constexpr float GAMMA = 0.9f;
    static constexpr float LAMBDA = 0.95f;
    static constexpr Index N_EPOCHS = 2;
    static constexpr float ACTION_ENTROPY_COEFFICIENT = 0;
  };
  static_assert(ACTOR_HIDDEN_DIM == 64 && ACTOR_NUM_LAYERS == 3 && CRITIC_HIDDEN_DIM == 64 &&
                CRITIC_NUM_LAYERS == 3);
  static_assert(OPTIMIZER_PARAMETERS::ALPHA == 0.001f);
};
using PpoLoop = rlt::rl::algorithms::ppo::loop::core::Config<Policy, Index, Rng, Pendulum, PpoSettings>;
using PpoState = PpoLoop::State<PpoLoop>;

struct PpoResult {
  double seconds, cpu_seconds;
  double training_return;  // of the last rollout, exploration included
};

PpoResult TrainPpo(Device& device, int iterations) {
  const auto state = std::make_unique<PpoState>();
  rlt::malloc(device, *state);
  rlt::init(device, *state, 1);
  PpoResult result{};
  const auto start = Clock::now();
  const std::clock_t cpu_start = std::clock();
  for (int i = 0; i < iterations; ++i) rlt::step(device, *state);
  result.seconds = Seconds(start, Clock::now());
  result.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  for (Index i = 0; i < PpoSettings::DATASET_SIZE; ++i) {
    result.training_return += rlt::get(state->on_policy_runner_dataset.rewards, i, 0);
  }
  result.training_return *= static_cast<double>(Pendulum::EPISODE_STEP_LIMIT) / PpoSettings::DATASET_SIZE;
  rlt::free(device, *state);
  return result;
}

// Prints the median of three trainings.
void TimePpo(Device& device, int iterations) {
  std::vector<PpoResult> results;
  for (int i = 0; i < 3; ++i) results.push_back(TrainPpo(device, iterations));
  std::sort(results.begin(), results.end(), [](auto& a, auto& b) { return a.seconds < b.seconds; });
  const PpoResult& median = results[1];
  const double steps = static_cast<double>(PpoSettings::DATASET_SIZE) * iterations;
  std::printf(
      "{\"peer\":\"rl_tools\",\"run\":\"ppo-pendulum\",\"envs\":%d,\"steps\":%.0f,\"seconds\":%.3f,"
      "\"cpu_seconds\":%.3f,\"steps_per_s\":%.0f,\"training_return\":%.0f}\n",
      static_cast<int>(PpoSettings::N_ENVIRONMENTS), steps, median.seconds, median.cpu_seconds,
      steps / median.seconds, median.training_return);
  std::fflush(stdout);
}

// ---- One training step

template <Index kInput, Index kHidden, Index kOutput, Index kBatch, Activation kActivation>
void TimeStep(Device& device, const char* network) {
  using Config = rlt::nn_models::mlp::Configuration<Policy, Index, kOutput, 3, kHidden, kActivation,
                                                    Activation::IDENTITY>;
  using Model =
      rlt::nn_models::mlp::NeuralNetwork<Config, rlt::nn::capability::Gradient<rlt::nn::parameters::Adam>,
                                         rlt::tensor::Shape<Index, 1, kBatch, kInput>>;
  using Input = rlt::Matrix<rlt::matrix::Specification<float, Index, kBatch, kInput>>;
  using Output = rlt::Matrix<rlt::matrix::Specification<float, Index, kBatch, kOutput>>;
  Model model;
  typename Model::template Buffer<> buffers;
  rlt::nn::optimizers::Adam<rlt::nn::optimizers::adam::Specification<Policy, Index>> adam;
  Input input;
  Output output, target, d_output;
  Rng rng;
  const auto for_all = [&](auto&& apply) {
    apply(model), apply(buffers), apply(adam), apply(input), apply(output), apply(target), apply(d_output);
  };
  for_all([&](auto& it) { rlt::malloc(device, it); });
  rlt::init(device, rng, 1);
  rlt::init_weights(device, model, rng);
  rlt::reset_optimizer_state(device, adam, model);
  rlt::randn(device, input, rng);
  rlt::randn(device, target, rng);

  const auto step = [&] {
    rlt::zero_gradient(device, model);
    rlt::forward(device, model, input, output, buffers, rng);
    rlt::nn::loss_functions::mse::gradient(device, output, target, d_output, 1.0f);
    rlt::backward(device, model, input, d_output, buffers);
    rlt::step(device, adam, model);
  };
  for (int i = 0; i < 20; ++i) step();
  auto start = Clock::now();
  for (int i = 0; i < 5; ++i) step();
  constexpr int kRounds = 7;
  const int steps = std::max(1, static_cast<int>(5 * 0.5 / kRounds / Seconds(start, Clock::now())));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    start = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    rounds.push_back(Seconds(start, Clock::now()) / steps);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  const double seconds = rounds[kRounds / 2];
  const double flops = 4.0 * kInput * kHidden + 6.0 * kHidden * kHidden + 6.0 * kHidden * kOutput;
  std::printf("{\"peer\":\"rl_tools\",\"network\":\"%s\",\"batch\":%d,\"us\":%.1f,\"gflops\":%.2f}\n",
              network, static_cast<int>(kBatch), seconds * 1e6, flops * kBatch / seconds / 1e9);
  std::fflush(stdout);
  for_all([&](auto& it) { rlt::free(device, it); });
}

template <Index kInput, Index kHidden, Index kOutput, Activation kActivation>
void TimeSteps(Device& device, const char* network) {
  TimeStep<kInput, kHidden, kOutput, 64, kActivation>(device, network);
  TimeStep<kInput, kHidden, kOutput, 256, kActivation>(device, network);
  TimeStep<kInput, kHidden, kOutput, 1024, kActivation>(device, network);
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 150;
  if (iterations <= 0) {
    std::fprintf(stderr, "usage: rl_tools_ppo [PPO iterations]\n");
    return 2;
  }
  openblas_set_num_threads(1);
  Device device;
  TimePpo(device, iterations);
  TimeSteps<4, 64, 2, Activation::RELU>(device, "4-64-64-2 relu");
  TimeSteps<4, 64, 2, Activation::TANH>(device, "4-64-64-2 tanh");
  TimeSteps<4, 64, 2, Activation::FAST_TANH>(device, "4-64-64-2 fast-tanh");
  TimeSteps<17, 256, 6, Activation::RELU>(device, "17-256-256-6 relu");
}
