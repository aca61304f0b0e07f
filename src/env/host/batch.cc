#include "trireme/env/host/batch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/system.h"
#include "trireme/env/host/futex.h"

namespace trireme {
namespace {

constexpr int kSpins = 2'000;  // some ten microseconds

std::size_t RoundUp(std::size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

HostedBatch::HostedBatch(std::shared_ptr<HostPool> pool, const EnvSpec& spec, const EnvFacts& facts,
                         std::shared_ptr<const ObsBounds> bounds, int size, double pictures_per_second)
    : pool_(std::move(pool)),
      spec_(spec),
      can_be_saved_(facts.snapshots),
      bounds_(std::move(bounds)),
      size_(size),
      pictures_per_second_(pictures_per_second),
      obs_bytes_(spec.obs.bytes()),
      choices_(spec.masks ? static_cast<std::size_t>(spec.action.choices()) : 0),
      parts_(static_cast<std::size_t>(std::min(size, pool_->size()))),
      attempts_(size),
      lengths_(size),
      returns_(size) {
  finished_.reserve(size);
  Lay();
  const int parts = static_cast<int>(parts_.size());
  for (int p = 0; p < parts; ++p) {
    Part& part = parts_[p];
    part.words = At<HostPart>(header().parts_at) + p;
    const int first = size * p / parts, end = size * (p + 1) / parts;
    part.words->first = static_cast<std::uint32_t>(first);
    part.words->count = static_cast<std::uint32_t>(end - first);
    part.number = pool_->NewPart();
    part.host = pool_->Occupy(end - first);
  }
  for (Part& part : parts_) {
    try {
      Open(part);
    } catch (const HostLost& lost) {
      if (!pool_->begun()) throw;
      OpenElsewhere(part, lost.what());
    }
  }
}

HostedBatch::~HostedBatch() {
  for (Part& part : parts_) {
    pool_->Release(part.host, static_cast<int>(part.words->count));
    if (part.served != nullptr) part.served->closed = true;
    if (part.process == nullptr) continue;
    try {
      part.process->Tell(nlohmann::json{{"op", "close"}, {"part", part.number}}.dump());
    } catch (const Error&) {  // it has gone
    }
  }
}

void HostedBatch::Lay() {
  const auto n = static_cast<std::size_t>(size_), parts = parts_.size();
  HostSegment layout{};
  layout.magic = kHostMagic;
  layout.version = kHostVersion;
  layout.envs = static_cast<std::uint32_t>(size_);
  layout.parts = static_cast<std::uint32_t>(parts);
  layout.action_size = static_cast<std::uint32_t>(spec_.action.size());
  layout.choices = static_cast<std::uint32_t>(choices_);
  layout.obs_bytes = static_cast<std::uint32_t>(obs_bytes_);
  std::size_t end = RoundUp(sizeof(HostSegment));
  const auto place = [&](std::uint64_t& at, std::size_t bytes) {
    at = end;
    end = RoundUp(end + bytes);
  };
  place(layout.parts_at, parts * sizeof(HostPart));
  place(layout.notes_at, parts * kHostNote);
  place(layout.warnings_at, parts * kHostNote);
  place(layout.seeds_at, n * sizeof(std::uint32_t));
  place(layout.actions_at, n * spec_.action.size() * sizeof(float));
  place(layout.rewards_at, n * sizeof(float));
  place(layout.terminated_at, n);
  place(layout.truncated_at, n);
  place(layout.obs_at, n * obs_bytes_);
  place(layout.final_obs_at, n * obs_bytes_);
  place(layout.masks_at, n * choices_);
  place(layout.final_masks_at, n * choices_);
  memory_ = std::make_shared<SharedMemory>(end, fmt::format("{} copies of {}", size_, spec_.name));
  std::memcpy(memory_->data(), &layout, sizeof layout);
}

void HostedBatch::Open(Part& part) {
  if (part.served != nullptr) part.served->closed = true;
  part.process = pool_->Process(part.host);
  pool_->AwaitStart(*part.process);
  StoreWord(part.words->request, 0);
  StoreWord(part.words->done, 0);
  part.words->failures = part.words->warnings = part.words->offences = 0;
  part.failures = part.warnings = 0;
  const nlohmann::json message = {{"op", "open"},
                                  {"part", part.number},
                                  {"index", static_cast<int>(&part - parts_.data())},
                                  {"drawn", pictures_per_second_ > 0}};
  const HostProcess::Answer answer = part.process->Ask(message.dump(), HostWork::kMaking, memory_->fd());
  if (!answer.error.empty()) throw HostLost(fmt::format("{} cannot be made: {}", spec_.name, answer.error));
  part.served = std::make_shared<ServedPart>();
  part.served->number = part.number;
  part.served->memory = memory_;
  part.served->words = part.words;
  part.served->rewards = At<std::uint32_t>(header().rewards_at);
  part.process->AddPart(part.served);
}

// However often it takes: the pool says when it is enough.
void HostedBatch::OpenElsewhere(Part& part, std::string reason) {
  for (bool open = false; !open;) {
    pool_->Replace(part.host, part.process, reason);
    try {
      Open(part);
      open = true;
    } catch (const HostLost& lost) {
      reason = lost.what();
    }
  }
}

void HostedBatch::Draw(int env, Picture& out) {
  const auto part = std::ranges::find_if(parts_, [&](const Part& p) {
    return static_cast<std::uint32_t>(env) - p.words->first < p.words->count;
  });
  TRIREME_CHECK(part != parts_.end());
  const nlohmann::json message = {
      {"op", "draw"}, {"part", part->number}, {"env", static_cast<std::uint32_t>(env) - part->words->first}};
  const HostProcess::Answer answer = part->process->Ask(message.dump(), HostWork::kStep);
  if (!answer.error.empty() || !answer.memory.valid())
    Fail("{} cannot be drawn: {}", spec_.name, answer.error);
  const auto said = nlohmann::json::parse(answer.text);
  const std::string rgb = BytesOf(answer.memory.get());
  out.width = said.value("width", 0);
  out.height = said.value("height", 0);
  out.rgb.assign(rgb.begin(), rgb.end());
  CheckPicture(out, spec_.name.c_str());
}

void HostedBatch::WriteSeeds(const Part& part) {
  std::uint32_t* const seeds = At<std::uint32_t>(header().seeds_at);
  for (std::uint32_t i = part.words->first; i < part.words->first + part.words->count; ++i) {
    seeds[i] =
        RandomStream(seed_, purpose_, first_id_ + i, attempts_[i]).NextBits() >> 1;  // some take 31 bits only
  }
}

void HostedBatch::Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) {
  seed_ = seed;
  purpose_ = purpose;
  first_id_ = first_id;
  steps_ = 0;
  std::ranges::fill(attempts_, 0u);
  std::ranges::fill(lengths_, 0);
  std::ranges::fill(returns_, 0.0);
  finished_.clear();
  for (Part& part : parts_) {
    WriteSeeds(part);
    Command(part, kHostReset);
  }
  FinishResets();
  for (int i = 0; i < size_; ++i) SetReward(i, 0);
  std::fill_n(Terminated(), size_, std::uint8_t{0});
  std::fill_n(Truncated(), size_, std::uint8_t{0});
  CheckNumbers();
  pool_->SetBegun();
}

void HostedBatch::FinishResets() {
  for (Part& part : parts_) {
    std::string lost = Await(part);
    if (!lost.empty() && !pool_->begun()) Fail("{} does not begin: {}", spec_.name, lost);
    if (!lost.empty()) BeginElsewhere(part, std::move(lost));
    Hear(part);
  }
}

void HostedBatch::Command(Part& part, HostCommand command) {
  const std::uint32_t first = part.words->first, count = part.words->count;
  for (std::uint32_t i = first; i < first + count; ++i) SetReward(i, std::bit_cast<float>(kHostPending));
  std::fill_n(Terminated() + first, count, std::uint8_t{0});
  std::fill_n(Truncated() + first, count, std::uint8_t{0});
  part.served->first_id = first_id_;
  part.served->step = command == kHostStep ? steps_ + 1 : steps_;
  part.words->command = command;
  StoreWord(part.words->request, part.words->request + 1);
  part.sent = true;
  part.process->Ring();
}

void HostedBatch::StepBegin(std::span<const float> actions) {
  if (spec_.action.box()) {
    const std::size_t width = spec_.action.low.size();
    float* const to = At<float>(header().actions_at);
    for (std::size_t k = 0; k < actions.size(); ++k) {
      to[k] = std::clamp(actions[k], spec_.action.low[k % width], spec_.action.high[k % width]);
    }
  } else {
    std::int32_t* const to = At<std::int32_t>(header().actions_at);
    for (std::size_t k = 0; k < actions.size(); ++k) to[k] = static_cast<std::int32_t>(actions[k]);
  }
  for (Part& part : parts_) Command(part, kHostStep);
}

bool HostedBatch::Pending(std::size_t i) const {
  return std::bit_cast<std::uint32_t>(Rewards()[i]) == kHostPending;
}

// Whoever waits for the host may look at it meanwhile.
void HostedBatch::SetReward(std::size_t i, float reward) {
  std::atomic_ref(Rewards()[i]).store(reward, std::memory_order_relaxed);
}

std::string HostedBatch::Await(Part& part) {
  HostPart& words = *part.words;
  HostProcess& process = *part.process;
  const auto done = [&] { return LoadWord(words.done) == words.request; };
  HostWait wait = HostWait::ForPart(pool_->patience());
  for (int spin = pool_->may_spin() ? kSpins : 0; spin > 0 && !done(); --spin) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  while (!done()) {
    const double since_s = MonotonicSeconds();
    const std::uint32_t before = LoadWord(words.done);
    StoreWord(words.waiting, 1);
    if (before != words.request) FutexWait(words.done, before, HostWait::kSlice);
    StoreWord(words.waiting, 0);
    if (done()) break;
    if (process.ended() && !done()) {
      part.sent = false;
      if (process.given_up() || process.serving() != part.number + 1) return process.Obituary();
      return fmt::format("{} took its process down: {}", Named(part.served->At()), process.Obituary());
    }
    if (wait.IsOver(process.progress(), MonotonicSeconds() - since_s)) {
      part.sent = false;
      process.GiveUp(wait.work());
      return process.Obituary();
    }
  }
  part.sent = false;
  return "";
}

// Where a copy has stepped before its host was lost, the step counts.
void HostedBatch::EndEpisodes(const Part& part) {
  for (std::uint32_t i = part.words->first; i < part.words->first + part.words->count; ++i) {
    if (Pending(i)) SetReward(i, 0);
    if (Terminated()[i] != 0 || Truncated()[i] != 0) continue;
    Truncated()[i] = 1;
    std::memcpy(FinalObs(i), Obs(i), obs_bytes_);
    if (choices_ > 0) std::memcpy(FinalMasks(i), Masks(i), choices_);
  }
}

void HostedBatch::BeginElsewhere(Part& part, std::string reason) {
  const std::uint32_t first = part.words->first, count = part.words->count;
  const std::vector<float> rewards(Rewards() + first, Rewards() + first + count);
  const std::vector<std::uint8_t> terminated(Terminated() + first, Terminated() + first + count),
      truncated(Truncated() + first, Truncated() + first + count);
  while (!reason.empty()) {
    OpenElsewhere(part, std::move(reason));
    for (std::uint32_t i = first; i < first + count; ++i) ++attempts_[i];
    WriteSeeds(part);
    Command(part, kHostReset);
    reason = Await(part);
  }
  for (std::uint32_t i = 0; i < count; ++i) SetReward(first + i, rewards[i]);
  std::ranges::copy(terminated, Terminated() + first);
  std::ranges::copy(truncated, Truncated() + first);
}

// What the host has noted.
void HostedBatch::Hear(Part& part) {
  HostPart& words = *part.words;
  const auto note = [&](std::uint64_t at, std::uint32_t size) {
    return std::string(At<char>(at) + (&part - parts_.data()) * kHostNote,
                       std::min<std::size_t>(size, kHostNote));
  };
  if (words.offences != 0) {
    Fail("{} breaks the rules, {}: {}", spec_.name, Named(words.failed_env),
         note(header().notes_at, words.note_size));
  }
  if (words.warnings != part.warnings) {
    part.warnings = words.warnings;
    pool_->Warn(
        fmt::format("{}: {}", Named(words.warned_env), note(header().warnings_at, words.warning_size)));
  }
  if (words.failures == part.failures) return;
  const std::string reason =
      fmt::format("{} raised {}", Named(words.failed_env), note(header().notes_at, words.note_size));
  if (!pool_->begun()) Fail("{} does not begin: {}", spec_.name, reason);
  const std::uint32_t failures = words.failures - std::exchange(part.failures, words.failures);
  pool_->Count(static_cast<int>(failures), reason);
}

void HostedBatch::StepEnd() {
  ++steps_;
  for (Part& part : parts_) {
    std::string lost = Await(part);
    if (!lost.empty()) {
      EndEpisodes(part);
      BeginElsewhere(part, std::move(lost));
    }
    Hear(part);
  }
  CheckNumbers();
  finished_.clear();
  for (int i = 0; i < size_; ++i) {
    ++lengths_[i];
    returns_[i] += static_cast<double>(Rewards()[i]);
    if ((Terminated()[i] | Truncated()[i]) == 0) continue;
    finished_.push_back({i, lengths_[i], returns_[i], Terminated()[i] != 0});
    lengths_[i] = 0;
    returns_[i] = 0;
  }
}

std::string HostedBatch::Named(std::size_t i) const {
  const std::string name = fmt::format("environment {}", first_id_ + i);
  if (steps_ == 0) return name + " in its first reset";
  return fmt::format("{} at step {} (step {} of its episode)", name, steps_, lengths_[i] + 1);
}

// One pass that vectorises; what it finds is looked at closely.
void HostedBatch::CheckNumbers() {
  for (int i = 0; i < size_; ++i) {
    if (!std::isfinite(Rewards()[i]))
      Fail("{} breaks the rules, {}: its reward is {}", spec_.name, Named(i), Rewards()[i]);
  }
  if (spec_.obs.type != ObsType::kFloat32) return;
  const std::size_t width = bounds_->low.size();
  constexpr float kMost = std::numeric_limits<float>::max();
  const auto check = [&](const std::byte* row, std::size_t i) {
    const float* const values = reinterpret_cast<const float*>(row);
    const float *const low = bounds_->low.data(), *const high = bounds_->high.data();
    std::uint32_t outside = 0;
    for (std::size_t k = 0; k < width; ++k) outside += !(values[k] >= low[k]) | !(values[k] <= high[k]);
    if (outside == 0) return;
    for (std::size_t k = 0; k < width; ++k) {
      if (values[k] >= low[k] && values[k] <= high[k]) continue;
      if (!(std::abs(values[k]) <= kMost)) {
        Fail("{} breaks the rules, {}: element {} of its observation is {}", spec_.name, Named(i), k,
             values[k]);
      }
      if (!std::exchange(within_, false)) continue;
      pool_->Warn(fmt::format("{}: element {} of its observation is {}, outside of {} ... {}", Named(i), k,
                              values[k], low[k], high[k]));
    }
  };
  for (int i = 0; i < size_; ++i) {
    check(Obs(i), i);
    if ((Terminated()[i] | Truncated()[i]) != 0) check(FinalObs(i), i);
  }
}

}  // namespace trireme
