#include "trireme/env/checked_batch.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

[[noreturn]] void FailForLie(const EnvSpec& spec, std::string_view what) {
  Fail("{} is not what it says it is: {}. That is a mistake in the environment", spec.name, what);
}

bool SameActions(const ActionSpace& a, const ActionSpace& b) {
  return a.kind == b.kind && a.parts == b.parts && a.low == b.low && a.high == b.high;
}

std::unique_ptr<EnvBatch> Checked(std::unique_ptr<EnvBatch> batch, const EnvEntry& env, int size,
                                  std::uint64_t seed, Purpose purpose, std::uint32_t first_id) {
  const EnvSpec& spec = env.spec;
  if (batch == nullptr) FailForLie(spec, "it makes no batch");
  batch->Reset(seed, purpose, first_id);

  const auto expect = [&](std::size_t found, std::size_t expected, const char* what) {
    if (found != expected)
      FailForLie(spec, fmt::format("a batch of {} has {} {}, not {}", size, found, what, expected));
  };
  const EnvSpec& made = batch->spec();
  if (made.obs != spec.obs || !SameActions(made.action, spec.action) || made.masks != spec.masks) {
    FailForLie(spec, "its batches have other observations, actions or masks");
  }
  const auto n = static_cast<std::size_t>(size);
  expect(static_cast<std::size_t>(batch->size()), n, "copies");
  expect(batch->obs().size(), n * spec.obs.bytes(), "bytes of observations");
  expect(batch->final_obs().size(), n * spec.obs.bytes(), "bytes of final observations");
  const std::size_t mask_bytes = spec.masks ? n * static_cast<std::size_t>(spec.action.choices()) : 0;
  expect(batch->masks().size(), mask_bytes, "bytes of masks");
  expect(batch->final_masks().size(), mask_bytes, "bytes of final masks");
  expect(batch->rewards().size(), n, "rewards");
  expect(batch->terminated().size(), n, "flags for terminated episodes");
  expect(batch->truncated().size(), n, "flags for truncated episodes");
  if (spec.masks) CheckMasks(*batch);
  if (env.facts.snapshots && batch->snapshots() == nullptr) {
    FailForLie(spec, "it can be saved, but its batches offer no snapshots");
  }
  return batch;
}

void CheckMask(const EnvSpec& spec, std::span<const std::uint8_t> masks, int copy) {
  const std::vector<int>& parts = spec.action.parts;
  const std::uint8_t* mask = masks.data() + static_cast<std::ptrdiff_t>(copy) * spec.action.choices();
  for (std::size_t part = 0; part < parts.size(); mask += parts[part++]) {
    if (std::any_of(mask, mask + parts[part], [](std::uint8_t allowed) { return allowed != 0; })) continue;
    FailForLie(spec, fmt::format("the mask of copy {} allows no choice{}", copy,
                                 parts.size() == 1 ? "" : fmt::format(" of part {}", part)));
  }
}

}  // namespace

std::unique_ptr<EnvBatch> MakeBatch(const EnvEntry& env, int size, std::uint64_t seed, Purpose purpose,
                                    std::uint32_t first_id) {
  return Checked(env.make ? env.make(size) : nullptr, env, size, seed, purpose, first_id);
}

std::unique_ptr<EnvBatch> MakeDrawnBatch(const EnvEntry& env, int size, std::uint64_t seed, Purpose purpose,
                                         std::uint32_t first_id) {
  if (!env.make_drawn) Fail("{} has no pictures: nothing says how to draw it", env.spec.name);
  auto batch = Checked(env.make_drawn(size), env, size, seed, purpose, first_id);
  if (batch->pictures() == nullptr) FailForLie(env.spec, "its batches were to be drawn and have no pictures");
  const double rate = batch->pictures()->per_second();
  if (!(rate > 0 && rate <= 1000))
    FailForLie(env.spec, fmt::format("it shows {} pictures in a second", rate));
  return batch;
}

void CheckMasks(const EnvBatch& batch) {
  const std::span<const std::uint8_t> masks = batch.masks();
  for (int copy = 0; copy < batch.size(); ++copy) CheckMask(batch.spec(), masks, copy);
}

void CheckFinalMask(const EnvBatch& batch, int copy) { CheckMask(batch.spec(), batch.final_masks(), copy); }

void CheckFinished(const EnvBatch& batch, std::span<const EpisodeEnd> finished) {
  const std::span<const std::uint8_t> terminations = batch.terminated(), truncations = batch.truncated();
  int next = 0;
  for (const EpisodeEnd& end : finished) {
    if (end.env < next || end.env >= batch.size()) {
      FailForLie(batch.spec(), fmt::format("it lists the end of copy {}, where one from {} to {} can follow",
                                           end.env, next, batch.size() - 1));
    }
    next = end.env + 1;
    const bool terminated = terminations[end.env] != 0, truncated = truncations[end.env] != 0;
    if (terminated != end.terminated || truncated == end.terminated) {
      FailForLie(batch.spec(),
                 fmt::format("copy {} is listed as {}, and its flags say terminated {}, truncated {}",
                             end.env, end.terminated ? "terminated" : "truncated", terminated, truncated));
    }
  }
}

}  // namespace trireme
