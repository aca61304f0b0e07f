#include "trireme/experience/trajectory_message.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/env/row.h"
#include "trireme/experience/message_parts.h"

namespace trireme {
namespace {

std::size_t BytesOf(const TrajectoryShape& shape, std::size_t cut_off) {
  const std::size_t samples = static_cast<std::size_t>(shape.steps) * shape.envs;
  const std::size_t width = RowLayout(shape.env).width();
  const std::size_t floats =
      (samples + shape.envs + cut_off) * width + samples * (shape.env.action.size() + 2);
  return sizeof(TrajectoryHeader) + floats * sizeof(float) + 2 * samples + cut_off * sizeof(int);
}

// Looks at all of them, whatever it finds, so that it looks at many at once.
bool AllFinite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t not_finite = 0;
  for (const float value : values)
    not_finite |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  return not_finite == 0;
}

void CheckNumbers(std::span<const float> values, const char* what, const char* of = "a trajectory") {
  if (!AllFinite(values)) Fail("{} whose {} are not all finite", of, what);
}

// First of all: where actions are none, what environments make of them is none either.
void CheckPolicy(const ActionSpace& space, const Trajectory& trajectory) {
  if (!AllFinite(trajectory.extra.span()))
    throw NoChoices("a trajectory whose probabilities are not all finite");
  if (space.box() && !AllFinite(trajectory.actions.span()))
    throw NoChoices("a trajectory whose actions are not all finite");
}

// Of one sample. mask: what was allowed, or null.
void CheckChoices(const ActionSpace& space, const float* action, const std::uint8_t* mask) {
  std::size_t first = 0;
  for (std::size_t part = 0; part < space.parts.size(); ++part) {
    const float choice = action[part];
    if (!(choice >= 0 && choice < static_cast<float>(space.parts[part])) ||
        choice != static_cast<float>(static_cast<int>(choice)))
      Fail("a trajectory with choice {:g} of {}", choice, space.parts[part]);
    if (mask != nullptr && mask[first + static_cast<std::size_t>(choice)] == 0)
      Fail("a trajectory with a choice that was not allowed");
    first += static_cast<std::size_t>(space.parts[part]);
  }
}

void CheckActions(const EnvSpec& env, const RowLayout& layout, const Trajectory& trajectory) {
  if (env.action.box()) return;
  std::vector<std::uint8_t> masks;
  for (int i = 0; i < trajectory.samples(); ++i) {
    CheckChoices(env.action, trajectory.actions.data() + i * env.action.size(),
                 layout.ReadMasks(trajectory.obs.data() + i * layout.width(), 1, masks));
  }
}

void CheckEnds(const Trajectory& trajectory) {
  std::vector<int> cut_off;
  for (int i = 0; i < trajectory.samples(); ++i) {
    if (trajectory.terminated[i] + trajectory.truncated[i] > 1)
      Fail("a trajectory with an episode that ends in two ways");
    if (trajectory.truncated[i] == 1) cut_off.push_back(i);
  }
  if (cut_off != trajectory.truncated_samples)
    Fail("a trajectory whose last observations are not those of the episodes that were cut off");
  const EpisodeTotals& episodes = trajectory.episodes;
  for (const double value : {episodes.count, episodes.return_sum, episodes.length_sum}) {
    if (!std::isfinite(value)) Fail("a trajectory whose returns are not all finite");
  }
}

}  // namespace

std::uint64_t ReadNumber(Incoming& message) {
  std::uint64_t number = 0;
  if (message.size() < sizeof number)
    Fail("a message of {} bytes is nothing that an actor or its learner says", message.size());
  ReadTo(message, std::span(&number, 1));
  return number;
}

void CheckRows(const RowLayout& layout, std::span<const float> rows, const char* what) {
  if (layout.plain()) return CheckNumbers(rows, "observations", what);
  std::vector<float> obs;
  std::vector<std::uint8_t> masks;
  for (std::size_t at = 0; at < rows.size(); at += layout.width()) {
    if (!layout.of_bytes())  // which are numbers, all of them
      CheckNumbers({layout.ReadObs(rows.data() + at, 1, obs), layout.obs_size()}, "observations", what);
    const std::uint8_t* mask = layout.ReadMasks(rows.data() + at, 1, masks);
    for (std::size_t i = 0; mask != nullptr && i < layout.mask_size(); ++i) {
      if (mask[i] > 1) Fail("{} whose masks are neither 0 nor 1", what);
    }
  }
}

std::size_t TrajectoryShape::most_bytes() const {
  return BytesOf(*this, static_cast<std::size_t>(steps) * envs);
}

Outgoing EncodeTrajectory(const Trajectory& t, std::uint64_t number, MessageMemory* memory) {
  const TrajectoryHeader header{.number = number,
                                .policy = t.policy,
                                .steps = t.steps,
                                .envs = t.envs,
                                .cut_off = t.truncated_samples.size(),
                                .episodes = t.episodes.count,
                                .return_sum = t.episodes.return_sum,
                                .length_sum = t.episodes.length_sum};
  const std::size_t floats =
      t.obs.size() + t.actions.size() + t.extra.size() + t.rewards.size() + t.truncated_obs.size();
  const std::size_t bytes = sizeof header + floats * sizeof(float) + t.terminated.size() +
                            t.truncated.size() + t.truncated_samples.size() * sizeof(int);
  MessageParts writer = memory == nullptr ? MessageParts(bytes) : MessageParts(bytes, *memory);
  writer.Put(std::span(&header, 1));
  for (const std::span<const float> values :
       {t.obs.span(), t.actions.span(), t.extra.span(), t.rewards.span()})
    writer.Put(values);
  writer.Put(t.terminated.span());
  writer.Put(t.truncated.span());
  writer.Put(std::span(t.truncated_samples));
  writer.Put(std::span(t.truncated_obs));
  return writer.Done();
}

void DecodeTrajectory(Incoming& message, const TrajectoryShape& shape, Trajectory& to) {
  const std::size_t bytes = message.size() + sizeof(TrajectoryHeader::number);
  if (bytes < sizeof(TrajectoryHeader)) Fail("a message of {} bytes is no trajectory", bytes);
  TrajectoryHeader header{};
  ReadRest(message, header.number, header);
  if (header.steps != shape.steps || header.envs != shape.envs) {
    Fail("a trajectory of {} steps of {} environments, where {} of {} are learned from", header.steps,
         header.envs, shape.steps, shape.envs);
  }
  const std::size_t samples = static_cast<std::size_t>(shape.steps) * shape.envs;
  if (header.cut_off > samples || bytes != BytesOf(shape, header.cut_off))
    Fail("a trajectory of {} bytes, which is not its length", bytes);
  const RowLayout layout(shape.env);
  if (to.steps != shape.steps || to.envs != shape.envs)
    to = Trajectory(layout, shape.env.action.size(), shape.steps, shape.envs);
  to.policy = header.policy;
  to.episodes = {header.episodes, header.return_sum, header.length_sum};
  to.truncated_samples.resize(header.cut_off);
  to.truncated_obs.resize(header.cut_off * layout.width());
  for (const std::span<float> values : {to.obs.span(), to.actions.span(), to.extra.span(), to.rewards.span()})
    ReadTo(message, values);
  ReadTo(message, to.terminated.span());
  ReadTo(message, to.truncated.span());
  ReadTo(message, std::span(to.truncated_samples));
  ReadTo(message, std::span(to.truncated_obs));

  CheckPolicy(shape.env.action, to);
  CheckRows(layout, to.obs.span(), "a trajectory");
  CheckRows(layout, to.truncated_obs, "a trajectory");
  CheckNumbers(to.rewards.span(), "rewards");
  CheckActions(shape.env, layout, to);
  CheckEnds(to);
}

Outgoing EncodePolicy(std::uint64_t version, std::span<const float> params) {
  const PolicyHeader header{version, params.size()};
  MessageParts writer(sizeof header + params.size_bytes());
  writer.Put(std::span(&header, 1));
  writer.Put(params);
  return writer.Done();
}

std::shared_ptr<const PublishedPolicy> DecodePolicy(Incoming& message, std::uint64_t version,
                                                    std::size_t params, const PublishedPolicy* had) {
  const std::size_t bytes = message.size() + sizeof version;
  if (bytes < sizeof(PolicyHeader)) Fail("a message of {} bytes is no policy", bytes);
  PolicyHeader header{};
  ReadRest(message, version, header);
  if (header.params == 0 && bytes == sizeof header && had != nullptr && had->version == header.version)
    return nullptr;
  if (header.params != params || bytes != sizeof header + params * sizeof(float))
    Fail("a policy of {} parameters in {} bytes, where the network has {}", header.params, bytes, params);
  auto policy = std::make_shared<PublishedPolicy>();
  policy->version = header.version;
  policy->params.resize(params);
  ReadTo(message, std::span(policy->params));
  return policy;
}

}  // namespace trireme
