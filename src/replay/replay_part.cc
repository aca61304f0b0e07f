#include "trireme/replay/replay_part.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

ReplayPart::ReplayPart(const ReplayRules& rules, const EnvSpec& env, int envs)
    : layout_(env),
      action_size_(env.action.size()),
      n_step_(envs, rules.n_step, rules.gamma, static_cast<int>(layout_.width()), env.action.size()),
      buffer_(rules.capacity, layout_, env.action.size()),
      sampler_(rules.capacity, rules.alpha, rules.epsilon),
      begun_(static_cast<std::size_t>(envs)) {}

std::uint64_t ReplayPart::Bytes(const ReplayRules& rules, const EnvSpec& env) {
  return ReplayBuffer::Bytes(rules.capacity, RowLayout(env), env.action.size()) +
         PrioritisedSampler::Bytes(rules.capacity);
}

void ReplayPart::Insert(const Trajectory& trajectory) {
  const int envs = trajectory.envs, samples = trajectory.samples();
  TRIREME_CHECK(static_cast<std::size_t>(envs) == begun_.size());
  const std::size_t width = layout_.width();
  std::ranges::fill(begun_, 0);
  slots_.clear();
  errors_.clear();
  std::size_t cut_off = 0;  // into the list of truncated episodes
  for (int i = 0; i < samples; ++i) {
    const int env = i % envs;
    const bool truncated = trajectory.truncated[i] != 0, last = i + envs >= samples;
    const float* next_obs = truncated ? trajectory.truncated_obs.data() + cut_off++ * width
                                      : trajectory.obs.data() + (i + envs) * width;
    const auto store = [&](const Transition& transition) {
      const std::size_t slot = buffer_.Add(transition);
      slots_.push_back(static_cast<std::uint32_t>(slot));
      errors_.push_back(trajectory.extra[begun_[env]++ * envs + env]);
    };
    n_step_.Append(env, trajectory.obs.data() + i * width, trajectory.actions.data() + i * action_size_,
                   trajectory.rewards[i], next_obs, trajectory.terminated[i] != 0, truncated || last, store);
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
