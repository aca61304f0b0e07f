#include "trireme/algo/actor_critic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "trireme/algo/policy_kernels.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"

namespace trireme {
namespace {

// The draws of one step: environment i uses block 0 of stream (kAction, first_env + i, step).
struct StepDraws {
  std::uint64_t seed;
  std::uint32_t first_env;
  std::uint64_t step;
};

struct SampleCategorical {
  [[gnu::always_inline]] static inline void Run(const float* logits, int stride, int choices, int n,
                                                StepDraws draws, float* actions, float* log_probs) {
    for (int b = 0; b < n; ++b, logits += stride) {
      const float uniform = ToUniform(
          Philox(draws.seed, StreamCounter(Purpose::kAction, draws.first_env + b, draws.step, 0))[0]);
      float highest = logits[0];
      for (int a = 1; a < choices; ++a) highest = logits[a] > highest ? logits[a] : highest;
      float sum = 0;
      for (int a = 0; a < choices; ++a) sum += FastExp(logits[a] - highest);
      // The first action whose cumulative weight exceeds the draw.
      float left = uniform * sum;
      int action = 0;
      for (; action < choices - 1; ++action) {
        left -= FastExp(logits[action] - highest);
        if (left < 0) break;
      }
      actions[b] = static_cast<float>(action);
      log_probs[b] = logits[action] - highest - FastLog(sum);
    }
  }
};

// Part i of environment b draws from word i % 4 of block i / 4 of the stream; one part alone draws as above.
template <bool kMasked>
struct SampleParts {
  [[gnu::always_inline]] static inline void Run(const float* logits, int stride,
                                                const std::span<const int>* parts, const std::uint8_t* mask,
                                                int n, StepDraws draws, float* actions, float* log_probs) {
    for (int b = 0; b < n; ++b, logits += stride) {
      PhiloxBlock block{};
      log_probs[b] = 0;
      const float* row = logits;
      for (std::size_t i = 0; i < parts->size(); ++i) {
        const int choices = (*parts)[i];
        if (i % 4 == 0) {
          block = Philox(draws.seed, StreamCounter(Purpose::kAction, draws.first_env + b, draws.step,
                                                   static_cast<std::uint32_t>(i / 4)));
        }
        const auto allowed = [&](int a) { return !kMasked || mask[a] != 0; };
        float highest = -std::numeric_limits<float>::infinity();
        for (int a = 0; a < choices; ++a) highest = allowed(a) && row[a] > highest ? row[a] : highest;
        float sum = 0;
        for (int a = 0; a < choices; ++a) sum += allowed(a) ? FastExp(row[a] - highest) : 0.0f;
        // The first allowed action whose cumulative weight exceeds the draw, or the last one.
        float left = ToUniform(block[i % 4]) * sum;
        int action = 0;
        for (int a = 0; a < choices; ++a) {
          if (!allowed(a)) continue;
          action = a;
          left -= FastExp(row[a] - highest);
          if (left < 0) break;
        }
        *actions++ = static_cast<float>(action);
        log_probs[b] += row[action] - highest - FastLog(sum);
        row += choices;
        if constexpr (kMasked) mask += choices;
      }
    }
  }
};

// A gradient (policy_kernels.h) that writes down log pi(a|s) and is zero.
struct NoteLogProb {
  float* log_probs;

  template <class T>
  [[gnu::always_inline]] T operator()(int b, const T& log_prob) const {
    StoreStrided<T>(log_probs + b, 1, log_prob);
    return T{};
  }
};

// The allowed choice of the highest logit, the first of several.
int BestOf(const float* logits, const std::uint8_t* mask, int choices) {
  int best = -1;
  for (int a = 0; a < choices; ++a) {
    if ((mask == nullptr || mask[a] != 0) && (best < 0 || logits[a] > logits[best])) best = a;
  }
  return std::max(best, 0);
}

}  // namespace

void ActorCriticSettings::Fields(ConfigFields& field) {
  layers.Fields(field);
  field("shared_tower", shared_tower, "policy and value share their hidden layers");
  field("policy_gain", policy_gain, "scale of the policy's last layer at the start", NonNegative());
  field("initial_log_std", initial_log_std, "continuous actions: log standard deviation at the start",
        Between(-10, 5));
}

NetworkSpec MakeActorCriticNetwork(const ActorCriticSettings& settings, const EnvSpec& env) {
  const int policy_size = env.action.box() ? env.action.size() : env.action.choices();
  const auto tower = [&](const char* name, int outputs, double gain) {
    return settings.layers.Tower(name, env.obs.size(), outputs, gain);
  };
  NetworkSpec spec;
  if (settings.shared_tower) {
    spec.towers = {tower("shared", policy_size + 1, settings.policy_gain)};
  } else {
    spec.towers = {tower("policy", policy_size, settings.policy_gain), tower("value", 1, 1.0)};
  }
  if (env.action.box()) {
    spec.free_vectors = {{"log_std", policy_size, static_cast<float>(settings.initial_log_std)}};
  }
  return spec;
}

OutputView ActorCritic::Policy(const float* obs, int n, Tape& tape) const {
  return {tape.Forward(0, obs, n).data(), policy_size_ + (shared_ ? 1 : 0)};
}

OutputView ActorCritic::Value(const float* obs, int n, Tape& tape) const {
  if (shared_) return {tape.Forward(0, obs, n).data() + policy_size_, policy_size_ + 1};
  return {tape.Forward(1, obs, n).data(), 1};
}

void ActorCritic::Values(const Trajectory& trajectory, const RowLayout& layout, Tape& tape,
                         std::span<float> values, std::span<float> final_values,
                         std::span<float> log_probs) const {
  thread_local std::vector<float> unpacked;  // kept: no allocation but the first
  thread_local std::vector<std::uint8_t> masks;
  const std::size_t action_size = head_ == Head::kGaussian ? policy_size_ : parts_.size();
  // with_policy: how many of the rows have actions whose log-probabilities are wanted.
  const auto evaluate = [&](const float* rows, int n, int with_policy, auto&& take) {
    const int pass_size = executor_.pass_size();
    for (int first = 0; first < n; first += pass_size) {
      const int count = std::min(pass_size, n - first);
      const float* at = rows + first * layout.width();
      const float* obs = layout.ReadObs(at, static_cast<std::size_t>(count), unpacked);
      const auto [outputs, stride] = Value(obs, count, tape);
      for (int i = 0; i < count; ++i) take(first + i, outputs[i * stride]);
      const int acting = std::min(count, with_policy - first);
      if (acting <= 0) continue;
      const OutputView policy =
          shared_ ? OutputView{outputs - policy_size_, stride} : Policy(obs, acting, tape);
      LogProbs(policy, trajectory.actions.data() + first * action_size,
               layout.ReadMasks(at, static_cast<std::size_t>(acting), masks), acting, tape.params(),
               log_probs.data() + first);
    }
  };
  evaluate(trajectory.obs.data(), trajectory.samples() + trajectory.envs,
           log_probs.empty() ? 0 : trajectory.samples(), [&](int i, float value) { values[i] = value; });
  const std::span<const int> truncated = trajectory.truncated_samples;
  evaluate(trajectory.truncated_obs.data(), static_cast<int>(truncated.size()), 0,
           [&](int i, float value) { final_values[truncated[i]] = value; });
}

// With the kernels of the losses, so that both see the same bits; the gradients they write are of no use here.
void ActorCritic::LogProbs(const OutputView& policy, const float* actions, const std::uint8_t* masks, int n,
                           std::span<const float> params, float* log_probs) const {
  thread_local std::vector<float> d_outputs, d_log_std;
  d_outputs.resize(static_cast<std::size_t>(n) * policy.stride);
  float entropy = 0;
  const PolicyPass pass{.n = n,
                        .size = policy_size_,
                        .stride = policy.stride,
                        .actions = actions,
                        .outputs = policy.data,
                        .d_outputs = d_outputs.data(),
                        .entropy_sum = &entropy};
  const NoteLogProb note{log_probs};
  switch (head_) {
    case Head::kCategorical:
      CategoricalGradient(pass, note);
      break;
    case Head::kParts:
      PartsGradient(pass, parts_, masks, note);
      break;
    case Head::kGaussian:
      d_log_std.resize(policy_size_);
      GaussianGradient(pass, LogStd(params), d_log_std, note);
      break;
  }
}

void ActorCritic::SampleTogether(std::span<const ActionRequest> requests, Tape& tape,
                                 std::vector<float>& gathered) const {
  if (requests.size() == 1) return Sample(requests[0], tape);
  const auto inputs = static_cast<std::size_t>(executor_.network().spec().towers[0].inputs);
  gathered.clear();
  for (const ActionRequest& request : requests)
    gathered.insert(gathered.end(), request.obs, request.obs + request.n * inputs);
  OutputView policy = Policy(gathered.data(), static_cast<int>(gathered.size() / inputs), tape);
  for (const ActionRequest& request : requests) {
    Draw(request, policy, tape.params());
    policy.data += static_cast<std::ptrdiff_t>(request.n) * policy.stride;
  }
}

void ActorCritic::Draw(const ActionRequest& request, const OutputView& policy,
                       std::span<const float> params) const {
  const auto& [seed, step, first_env, n, obs, masks, actions, log_probs, rows] = request;
  const auto [outputs, stride] = policy;
  const StepDraws draws{seed, first_env, step};
  if (head_ == Head::kCategorical) {
    SimdCall<SampleCategorical>(outputs, stride, policy_size_, n, draws, actions, log_probs);
    return;
  }
  if (head_ == Head::kParts) {
    const std::span<const int> all = parts_;
    if (masks != nullptr) {
      SimdCall<SampleParts<true>>(outputs, stride, &all, masks, n, draws, actions, log_probs);
    } else {
      SimdCall<SampleParts<false>>(outputs, stride, &all, masks, n, draws, actions, log_probs);
    }
    return;
  }
  // a = mean + std * noise;  log pi(a) = sum_d -noise^2/2 - log std - log(2 pi)/2
  const std::span<const float> log_std = LogStd(params);
  const float half_log_two_pi = 0.5f * std::log(2.0f * std::numbers::pi_v<float>);
  for (int b = 0; b < n; ++b) {
    RandomStream random(seed, Purpose::kAction, first_env + static_cast<std::uint32_t>(b), step);
    float log_prob = 0;
    for (int d = 0; d < policy_size_; ++d) {
      const auto noise = static_cast<float>(random.NextNormal());
      actions[b * policy_size_ + d] = outputs[b * stride + d] + std::exp(log_std[d]) * noise;
      log_prob -= 0.5f * noise * noise + log_std[d] + half_log_two_pi;
    }
    log_probs[b] = log_prob;
  }
}

void ActorCritic::Greedy(const float* obs, const std::uint8_t* masks, int n, Tape& tape,
                         float* actions) const {
  const auto [outputs, stride] = Policy(obs, n, tape);
  for (int b = 0; b < n; ++b) {
    const float* row = outputs + static_cast<std::ptrdiff_t>(b) * stride;
    if (head_ == Head::kGaussian) {
      actions = std::copy_n(row, policy_size_, actions);
      continue;
    }
    for (const int choices : parts_) {
      *actions++ = static_cast<float>(BestOf(row, masks, choices));
      row += choices;
      if (masks != nullptr) masks += choices;
    }
  }
}

}  // namespace trireme
