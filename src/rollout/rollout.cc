#include "trireme/rollout/rollout.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

Rollout::Rollout(const EnvEntry& env, const ShardSpec& shard, int steps)
    : shard_(shard),
      steps_(steps),
      batch_(env.make(shard.envs)),
      layout_(env.spec),
      action_size_(env.spec.action.size()) {
  const std::size_t samples = static_cast<std::size_t>(steps) * shard.envs;
  obs_ = AlignedBuffer<float>((samples + shard.envs) * layout_.width());
  actions_ = AlignedBuffer<float>(samples * action_size_);
  extra_ = AlignedBuffer<float>(samples);
  rewards_ = AlignedBuffer<float>(samples);
  terminated_ = AlignedBuffer<std::uint8_t>(samples);
  truncated_ = AlignedBuffer<std::uint8_t>(samples);
  running_returns_ = AlignedBuffer<float>(shard.envs);
  batch_->Reset(shard.seed, Purpose::kEnvReset, shard.first_env());
}

void Rollout::Normalise(const Normaliser* normaliser, int n, float* rows) const {
  for (int b = 0; normaliser != nullptr && b < n; ++b, rows += layout_.width()) normaliser->Apply(rows, rows);
}

// A rollout starts where the previous one ended; row 0 is read anew because the normaliser may have changed.
void Rollout::Begin(const Normaliser* normaliser) {
  layout_.Pack(batch_->obs().data(), batch_->masks().data(), envs(), ObsRow(0));
  Normalise(normaliser, envs(), ObsRow(0));
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
  layout_.Pack(batch_->obs().data(), batch_->masks().data(), envs(), next);
  for (int b = 0; !raw_sums.empty() && normaliser != nullptr && b < envs(); ++b) {
    normaliser->AddTo(raw_sums, next + b * layout_.width());
  }
  Normalise(normaliser, envs(), next);
  for (const EpisodeEnd& end : batch_->finished()) {
    episodes_.count += 1;
    episodes_.return_sum += end.episode_return;
    episodes_.length_sum += end.length;
    if (end.terminated) continue;
    truncated_samples_.push_back(static_cast<int>(at) + end.env);
    truncated_obs_.resize(truncated_obs_.size() + layout_.width());
    float* const row = truncated_obs_.data() + truncated_obs_.size() - layout_.width();
    const std::size_t i = static_cast<std::size_t>(end.env);
    layout_.Pack(batch_->final_obs().data() + i * batch_->spec().obs.bytes(),
                 batch_->final_masks().data() + i * layout_.mask_size(), 1, row);
    Normalise(normaliser, 1, row);
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
