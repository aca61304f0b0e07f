#include "trireme/replay/replay_part.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

ReplayPart::ReplayPart(const ReplayRules& rules, const EnvSpec& env, int envs)
    : layout_(env),
      action_size_(env.action.size()),
      n_step_(rules.n_step),
      gamma_(rules.gamma),
      buffer_(rules.capacity, layout_, env.action.size()),
      sampler_(rules.capacity, rules.alpha, rules.epsilon),
      pending_(static_cast<std::size_t>(envs)) {
  TRIREME_CHECK(envs > 0 && n_step_ > 0 && gamma_ >= 0 && gamma_ <= 1);
  double power = 1;
  for (int k = 0; k <= n_step_; ++k, power *= gamma_) discounts_.push_back(static_cast<float>(power));
}

std::uint64_t ReplayPart::Bytes(const ReplayRules& rules, const EnvSpec& env) {
  return ReplayBuffer::Bytes(rules.capacity, RowLayout(env), env.action.size()) +
         PrioritisedSampler::Bytes(rules.capacity);
}

void ReplayPart::Insert(const Trajectory& trajectory) {
  const int envs = trajectory.envs, samples = trajectory.samples();
  TRIREME_CHECK(static_cast<std::size_t>(envs) == pending_.size());
  const std::size_t width = layout_.width();
  const auto obs = [&](int sample) { return trajectory.obs.data() + sample * width; };
  std::ranges::fill(pending_, 0);
  slots_.clear();
  errors_.clear();
  std::size_t cut_off = 0;  // into the list of truncated episodes
  for (int i = 0, env = 0; i < samples; ++i, env = env + 1 == envs ? 0 : env + 1) {
    const bool terminated = trajectory.terminated[i] != 0, truncated = trajectory.truncated[i] != 0;
    const float* const next_obs =
        truncated ? trajectory.truncated_obs.data() + cut_off++ * width : obs(i + envs);
    const bool ended = terminated || truncated || i + envs >= samples;
    int& pending = pending_[env];
    ++pending;
    if (!ended && pending < n_step_) continue;
    // Whoever has n steps, or at an end as many as there are, the oldest first.
    do {
      const int begin = i - (pending - 1) * envs;
      double ret = 0;
      for (int k = i; k >= begin; k -= envs) ret = trajectory.rewards[k] + gamma_ * ret;
      const std::size_t slot = buffer_.Add({.obs = obs(begin),
                                            .next_obs = next_obs,
                                            .actions = trajectory.actions.data() + begin * action_size_,
                                            .ret = static_cast<float>(ret),
                                            .discount = terminated ? 0.0f : discounts_[pending]});
      slots_.push_back(static_cast<std::uint32_t>(slot));
      errors_.push_back(trajectory.extra[begin]);
      --pending;
    } while (ended && pending > 0);
  }
  sampler_.Update(slots_, errors_);
}

std::uint64_t ReplayPart::NumberIn(std::uint32_t slot) const {
  const std::uint64_t capacity = buffer_.capacity(), next = buffer_.added() % capacity;
  const std::uint64_t round = buffer_.added() - next;  // the number of the first slot, this time round
  return slot < next ? round + slot : round - capacity + slot;
}

void ReplayPart::DrawSlots(RandomStream& random, double beta, std::span<std::uint64_t> numbers,
                           std::span<float> weights) {
  slots_.resize(numbers.size());
  errors_.clear();
  sampler_.Sample(random, beta, slots_, weights);
  for (std::size_t i = 0; i < slots_.size(); ++i) numbers[i] = NumberIn(slots_[i]);
}

void ReplayPart::Sample(RandomStream& random, double beta, ReplayDraw& draw) {
  DrawSlots(random, beta, draw.numbers, draw.weights);
  buffer_.Gather(slots_, draw.transitions);
}

void ReplayPart::SampleRecords(RandomStream& random, double beta, std::span<std::uint64_t> numbers,
                               std::span<float> weights, std::span<float> records) {
  DrawSlots(random, beta, numbers, weights);
  buffer_.GatherRecords(slots_, records);
}

void ReplayPart::Update(std::span<const std::uint64_t> numbers, std::span<const float> errors) {
  slots_.clear();
  errors_.clear();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    TRIREME_CHECK(numbers[i] < inserted());
    if (inserted() - numbers[i] > buffer_.capacity()) {
      ++overwritten_errors_;
      continue;
    }
    slots_.push_back(static_cast<std::uint32_t>(numbers[i] % buffer_.capacity()));
    errors_.push_back(errors[i]);
  }
  sampler_.Update(slots_, errors_);
}

void ReplayPart::Save(StateWriter& out, const std::string& scope) const {
  buffer_.Save(out, scope + "/replay");
  sampler_.Save(out, scope + "/priorities");
}

void ReplayPart::Load(const StateReader& in, const std::string& scope) {
  buffer_.Load(in, scope + "/replay");
  sampler_.Load(in, scope + "/priorities");
}

}  // namespace trireme
