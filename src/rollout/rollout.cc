#include "trireme/rollout/rollout.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

Rollout::Rollout(const EnvEntry& env, const ShardSpec& shard, int steps)
    : shard_(shard),
      steps_(steps),
      batch_(env.make(shard.envs)),
      obs_size_(env.spec.obs.size()),
      action_size_(env.spec.action.size()) {
  const std::size_t samples = static_cast<std::size_t>(steps) * shard.envs;
  obs_ = AlignedBuffer<float>((samples + shard.envs) * obs_size_);
  actions_ = AlignedBuffer<float>(samples * action_size_);
  extra_ = AlignedBuffer<float>(samples);
  rewards_ = AlignedBuffer<float>(samples);
  terminated_ = AlignedBuffer<std::uint8_t>(samples);
  truncated_ = AlignedBuffer<std::uint8_t>(samples);
  running_returns_ = AlignedBuffer<float>(shard.envs);
  batch_->Reset(shard.seed, Purpose::kEnvReset, shard.first_env());
}

void Rollout::CopyObs(const std::byte* from, int rows, const Normaliser* normaliser, float* to) const {
  ObsToFloat(batch_->spec().obs, from, static_cast<std::size_t>(rows), to);
  if (normaliser == nullptr) return;
  for (int b = 0; b < rows; ++b) normaliser->Apply(to + b * obs_size_, to + b * obs_size_);
}

// A rollout starts where the previous one ended; row 0 is read anew because the normaliser may have changed.
void Rollout::Begin(const Normaliser* normaliser) {
  CopyObs(batch_->obs().data(), envs(), normaliser, ObsRow(0));
  truncated_samples_.clear();
  truncated_obs_.clear();
}

void Rollout::StepEnvs(int t, const Normaliser* normaliser, std::span<double> raw_sums) {
  const std::size_t at = static_cast<std::size_t>(t) * envs();
  batch_->Step({ActionRow(t), static_cast<std::size_t>(envs()) * action_size_});
  std::ranges::copy(batch_->rewards(), rewards_.begin() + at);
  std::ranges::copy(batch_->terminated(), terminated_.begin() + at);
  std::ranges::copy(batch_->truncated(), truncated_.begin() + at);

  float* next = ObsRow(t + 1);
  CopyObs(batch_->obs().data(), envs(), nullptr, next);
  for (int b = 0; normaliser != nullptr && b < envs(); ++b) {
    if (!raw_sums.empty()) normaliser->AddTo(raw_sums, next + b * obs_size_);
    normaliser->Apply(next + b * obs_size_, next + b * obs_size_);
  }
  for (const EpisodeEnd& end : batch_->finished()) {
    episodes_.count += 1;
    episodes_.return_sum += end.episode_return;
    episodes_.length_sum += end.length;
    if (end.terminated) continue;
    truncated_samples_.push_back(static_cast<int>(at) + end.env);
    truncated_obs_.resize(truncated_obs_.size() + obs_size_);
    CopyObs(batch_->final_obs().data() + end.env * batch_->spec().obs.bytes(), 1, normaliser,
            truncated_obs_.data() + truncated_obs_.size() - obs_size_);
  }
}

void Rollout::AddReturnsTo(std::span<double> sums, float discount, const Normaliser& normaliser) {
  for (int i = 0; i < samples(); ++i) {
    float& g = running_returns_[i % envs()];
    g = discount * g + rewards_[i];
    normaliser.AddTo(sums, &g);
    if ((terminated_[i] | truncated_[i]) != 0) g = 0;
  }
}

EpisodeTotals Rollout::TakeEpisodes() { return std::exchange(episodes_, {}); }

std::string Rollout::Scope() const { return fmt::format("shard/{}", shard_.index); }

void Rollout::Save(StateWriter& out) const {
  TRIREME_CHECK(batch_->snapshots() != nullptr);
  batch_->snapshots()->Save(out, Scope() + "/env");
  out.PutValue(Scope() + "/seed", shard_.seed);
  out.PutValue(Scope() + "/step_number", step_number_);
  out.Put<float>(Scope() + "/running_returns", running_returns_.span());
}

void Rollout::Load(const StateReader& in) {
  TRIREME_CHECK(batch_->snapshots() != nullptr);
  batch_->snapshots()->Load(in, Scope() + "/env");
  shard_.seed = in.GetValue<std::uint64_t>(Scope() + "/seed");
  step_number_ = in.GetValue<std::uint64_t>(Scope() + "/step_number");
  in.Get<float>(Scope() + "/running_returns", running_returns_.span());
}

}  // namespace trireme
