#include "trireme/rollout/rollout.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/env/checked_batch.h"

namespace trireme {

Rollout::Rollout(const EnvEntry& env, const ShardSpec& shard, int steps)
    : shard_(shard),
      can_be_saved_(env.facts.snapshots),
      steps_elsewhere_(env.facts.steps_elsewhere),
      layout_(env.spec),
      action_size_(env.spec.action.size()),
      now_(layout_, action_size_, steps, shard.envs),
      running_returns_(shard.envs) {
  TRIREME_CHECK(steps > 0 && shard.envs > 0);
  const int groups = steps_elsewhere_ ? std::min(2, shard.envs) : 1;
  for (int g = 0; g < groups; ++g) {
    const int first = shard.envs * g / groups, end = shard.envs * (g + 1) / groups;
    groups_.push_back({first, MakeBatch(env, end - first, shard.seed, Purpose::kEnvReset,
                                        shard.first_env() + static_cast<std::uint32_t>(first))});
  }
}

void Rollout::Normalise(const Normaliser* normaliser, int n, float* rows) const {
  for (int b = 0; normaliser != nullptr && b < n; ++b, rows += layout_.width()) normaliser->Apply(rows, rows);
}

float* Rollout::PackObs(const Group& group, int t) {
  float* const rows = now_.obs.data() + SampleOf(group, t) * layout_.width();
  layout_.Pack(group.batch->obs().data(), group.batch->masks().data(), group.batch->size(), rows);
  return rows;
}

// A rollout starts where the previous one ended; row 0 is read anew because the normaliser may have changed.
void Rollout::Begin(const Normaliser* normaliser) {
  for (const Group& group : groups_) Normalise(normaliser, group.batch->size(), PackObs(group, 0));
  ended_ = 0;
  now_.truncated_samples.clear();
  now_.truncated_obs.clear();
  raw_sums_.assign(normaliser == nullptr ? 0 : normaliser->sums_size(), 0.0);
}

ActionRequest Rollout::Request(const Group& group, int t) {
  const std::size_t at = SampleOf(group, t);
  const int n = group.batch->size();
  const float* const rows = now_.obs.data() + at * layout_.width();
  return {.seed = shard_.seed,
          .step = step_number_ + static_cast<std::uint64_t>(t),
          .first_env = shard_.first_env() + static_cast<std::uint32_t>(group.first),
          .n = n,
          .obs = layout_.ReadObs(rows, n, unpacked_),
          .masks = layout_.mask_size() == 0 ? nullptr : group.batch->masks().data(),
          .actions = now_.actions.data() + at * action_size_,
          .extra = now_.extra.data() + at,
          .rows = rows};
}

void Rollout::BeginStep(const Group& group, int t) {
  group.batch->StepBegin(
      now_.actions.span().subspan(SampleOf(group, t) * action_size_, group.batch->size() * action_size_));
}

void Rollout::EndStep(std::span<const Turn> turns, int t, const Normaliser* normaliser) {
  for (std::size_t i = turns.size(); i-- > 0;) turns[i].group->batch->StepEnd();
  for (const auto& [rollout, group] : turns) rollout->Record(*group, t, normaliser);
}

void Rollout::Record(const Group& group, int t, const Normaliser* normaliser) {
  const EnvBatch& batch = *group.batch;
  const std::size_t at = SampleOf(group, t);
  std::ranges::copy(batch.rewards(), now_.rewards.begin() + at);
  std::ranges::copy(batch.terminated(), now_.terminated.begin() + at);
  std::ranges::copy(batch.truncated(), now_.truncated.begin() + at);

  if (layout_.mask_size() > 0) CheckMasks(batch);
  float* const next = PackObs(group, t + 1);
  for (int b = 0; normaliser != nullptr && b < batch.size(); ++b) {
    normaliser->AddTo(raw_sums_, next + b * layout_.width());
  }
  Normalise(normaliser, batch.size(), next);
  const std::span<const EpisodeEnd> finished = batch.finished();
  if (!finished.empty()) CheckFinished(batch, finished);
  ended_ += finished.size();
  for (const EpisodeEnd& end : finished) {
    now_.episodes.count += 1;
    now_.episodes.return_sum += end.episode_return;
    now_.episodes.length_sum += end.length;
    if (end.terminated) continue;
    now_.truncated_samples.push_back(static_cast<int>(at) + end.env);
    now_.truncated_obs.resize(now_.truncated_obs.size() + layout_.width());
    float* const row = now_.truncated_obs.data() + now_.truncated_obs.size() - layout_.width();
    const std::size_t i = static_cast<std::size_t>(end.env);
    if (layout_.mask_size() > 0) CheckFinalMask(batch, end.env);
    layout_.Pack(batch.final_obs().data() + i * batch.spec().obs.bytes(),
                 batch.final_masks().data() + i * layout_.mask_size(), 1, row);
    Normalise(normaliser, 1, row);
  }
}

void Rollout::End() {
  step_number_ += static_cast<std::uint64_t>(steps());
  CheckFlags();
}

// Those of listed episodes are right: there must be no others.
void Rollout::CheckFlags() const {
  std::uint32_t flags = 0;
  for (int i = 0; i < samples(); ++i) flags += std::uint32_t{now_.terminated[i]} + now_.truncated[i];
  if (flags == ended_) return;
  Fail("{} is not what it says it is: it has set {} flags for ended episodes and listed {} in {} steps",
       env_spec().name, flags, ended_, samples());
}

void Rollout::AddReturnsTo(std::span<double> sums, float discount, const Normaliser& normaliser) {
  for (int i = 0; i < samples(); ++i) {
    float& g = running_returns_[i % envs()];
    g = discount * g + now_.rewards[i];
    normaliser.AddTo(sums, &g);
    if ((now_.terminated[i] | now_.truncated[i]) != 0) g = 0;
  }
}

void Rollout::Exchange(Trajectory& other) {
  if (other.samples() == 0) other = Trajectory(layout_, action_size_, steps(), envs());
  TRIREME_CHECK(other.steps == steps() && other.envs == envs());
  std::swap(now_, other);
  now_.episodes = {};
}

EpisodeTotals Rollout::TakeEpisodes() { return std::exchange(now_.episodes, {}); }

std::string Rollout::Scope() const { return fmt::format("shard/{}", shard_.index); }

std::string Rollout::EnvScope(const Group& group) const {
  return Scope() + (group.first == 0 ? "/env" : fmt::format("/env/{}", group.first));
}

void Rollout::Save(StateWriter& out) const {
  out.PutValue(Scope() + "/step_number", step_number_);
  if (!can_be_saved_) return;
  for (const Group& group : groups_) group.batch->snapshots()->Save(out, EnvScope(group));
  out.PutValue(Scope() + "/seed", shard_.seed);
  out.Put<float>(Scope() + "/running_returns", running_returns_.span());
}

bool Rollout::Load(const StateReader& in) {
  step_number_ = in.GetValue<std::uint64_t>(Scope() + "/step_number");
  if (!can_be_saved_ || !in.Has(Scope() + "/seed")) return false;
  for (const Group& group : groups_) group.batch->snapshots()->Load(in, EnvScope(group));
  shard_.seed = in.GetValue<std::uint64_t>(Scope() + "/seed");
  in.Get<float>(Scope() + "/running_returns", running_returns_.span());
  return true;
}

}  // namespace trireme
