#include "trireme/server/disk/part_state.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

constexpr std::size_t kTile = 1024;  // floats that are scaled and applied while they are in the cache

struct ScaleKernel {
  TRIREME_INLINE void Run(const float* __restrict from, float* __restrict to, std::size_t n, float scale) {
    for (std::size_t i = 0; i < n; ++i) to[i] = scale * from[i];
  }
};

std::string MomentName(std::size_t m) { return fmt::format("optimizer/moment{}", m); }
constexpr const char* kCompress = "setup/compress";
constexpr const char *kUpdates = "updates", *kMark = "mark";
std::string KeptName(std::size_t i) { return i == 0 ? "mark/params" : fmt::format("mark/moment{}", i - 1); }

constexpr double OptimizerSettings::*kOptimizerNumbers[] = {
    &OptimizerSettings::momentum,  &OptimizerSettings::beta1, &OptimizerSettings::beta2,
    &OptimizerSettings::rms_alpha, &OptimizerSettings::eps,   &OptimizerSettings::weight_decay};

void SaveSetup(const PartSetup& setup, StateWriter& out) {
  out.PutText("setup/identity", setup.identity);
  out.PutValue<std::uint64_t>("setup/begin", setup.begin);
  out.PutValue<std::uint64_t>("setup/size", setup.size);
  if (setup.compress != kNoCodec) out.PutText(kCompress, setup.compress);
  out.PutText("optimizer/kind", OptimizerName(setup.optimizer.kind));
  std::vector<double> numbers;
  for (const auto number : kOptimizerNumbers) numbers.push_back(setup.optimizer.*number);
  out.Put<double>("optimizer/numbers", numbers);
}

PartSetup LoadSetup(const StateReader& in) {
  PartSetup setup = {.identity = in.GetText("setup/identity"),
                     .optimizer = {},
                     .begin = in.GetValue<std::uint64_t>("setup/begin"),
                     .size = in.GetValue<std::uint64_t>("setup/size")};
  if (in.Has(kCompress)) setup.compress = in.GetText(kCompress);
  if (setup.begin + setup.size < setup.begin) Fail("it holds parameters that no run can have");
  const std::string& kind = in.GetText("optimizer/kind");
  const auto row = std::find_if(std::begin(kOptimizerNames), std::end(kOptimizerNames),
                                [&](const auto& candidate) { return candidate.name == kind; });
  if (row == std::end(kOptimizerNames)) Fail("it was made by an optimizer '{}' that is not known here", kind);
  setup.optimizer.kind = row->value;
  std::vector<double> numbers(std::size(kOptimizerNumbers));
  in.Get<double>("optimizer/numbers", numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) setup.optimizer.*kOptimizerNumbers[i] = numbers[i];
  return setup;
}

}  // namespace

PartState::PartState(const PartSetup& setup, std::span<const float> params, std::span<const float> moments,
                     std::uint64_t updates, std::int64_t steps)
    : setup_(setup), rule_(setup.optimizer), version_(updates), updates_(updates), steps_(steps) {
  TRIREME_CHECK(params.size() == setup.size);
  MakeRoom();
  TRIREME_CHECK(moments.empty() || moments.size() == moments_.size() * params.size());
  std::copy(params.begin(), params.end(), params_.begin());
  if (moments.empty()) {
    if (coder_ != nullptr) std::copy(params.begin(), params.end(), moments_.back().begin());
    return;
  }
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    const auto part = moments.subspan(m * setup.size, setup.size);
    std::copy(part.begin(), part.end(), moments_[m].begin());
  }
}

PartState::PartState(const StateReader& in) : setup_(LoadSetup(in)), rule_(setup_.optimizer) {
  MakeRoom();
  in.Get<float>("params", params_.span());
  for (std::size_t m = 0; m < moments_.size(); ++m) in.Get<float>(MomentName(m), moments_[m].span());
  version_ = in.GetValue<std::uint64_t>("version");
  updates_ = in.Has(kUpdates) ? in.GetValue<std::uint64_t>(kUpdates) : version_;
  if (in.Has(kMark)) {
    MakeRoomForMark();
    kept_.mark = in.GetValue<std::uint64_t>(kMark);
    kept_.version = in.GetValue<std::uint64_t>("mark/version");
    kept_.updates = in.GetValue<std::uint64_t>("mark/updates");
    for (std::size_t i = 0; i < kept_.values.size(); ++i) in.Get<float>(KeptName(i), kept_.values[i].span());
  }
  steps_ = in.GetValue<std::int64_t>("steps");
  std::vector<LastSequences::Entry> entries(in.GetValue<std::uint64_t>("workers/count"));
  in.Get<LastSequences::Entry>("workers/last", entries);
  for (const LastSequences::Entry& entry : entries) sequences_.Set(entry);
  const auto notes = in.GetValue<std::uint64_t>("notes/count");
  for (std::uint64_t i = 0; i < notes; ++i) {
    notes_[in.GetText(fmt::format("notes/{}/name", i))] = in.GetText(fmt::format("notes/{}/value", i));
  }
}

void PartState::Save(StateWriter& out) const {
  SaveSetup(setup_, out);
  out.Put<float>("params", params_.span());
  for (std::size_t m = 0; m < moments_.size(); ++m) out.Put<float>(MomentName(m), moments_[m].span());
  out.PutValue<std::uint64_t>("version", version_);
  if (updates_ != version_) out.PutValue<std::uint64_t>(kUpdates, updates_);
  if (kept_.mark) {
    out.PutValue<std::uint64_t>(kMark, *kept_.mark);
    out.PutValue<std::uint64_t>("mark/version", kept_.version);
    out.PutValue<std::uint64_t>("mark/updates", kept_.updates);
    for (std::size_t i = 0; i < kept_.values.size(); ++i) out.Put<float>(KeptName(i), kept_.values[i].span());
  }
  out.PutValue<std::int64_t>("steps", steps_);
  out.PutValue<std::uint64_t>("workers/count", sequences_.entries().size());
  out.Put<LastSequences::Entry>("workers/last", sequences_.entries());
  out.PutValue<std::uint64_t>("notes/count", notes_.size());
  std::size_t i = 0;
  for (const auto& [name, value] : notes_) {
    out.PutText(fmt::format("notes/{}/name", i), name);
    out.PutText(fmt::format("notes/{}/value", i++), value);
  }
}

void PartState::MakeRoom() {
  params_ = AlignedBuffer<float>(setup_.size);
  for (std::size_t m = 0; m < rule_.moments(); ++m) moments_.emplace_back(setup_.size);
  if (setup_.compress == kNoCodec) return;
  coder_ = std::make_unique<DifferenceCoder>(setup_.compress, setup_.size);
  moments_.emplace_back(setup_.size);
  delta_ = AlignedBuffer<std::byte>(coder_->bytes(setup_.size));
}

void PartState::Apply(const PartUpdate& update, std::span<const float> gradient) noexcept {
  if (update.mark && (!kept_.mark || *update.mark > *kept_.mark)) Keep(*update.mark);
  const OptimizerRule::Step step = rule_.At(static_cast<std::int64_t>(updates_ + 1));
  float* const exact = coder_ == nullptr ? params_.data() : moments_.back().data();
  alignas(64) float scaled[kTile];
  for (std::size_t tile = 0; tile < params_.size(); tile += kTile) {
    // In numbers of all parameters, as the groups are.
    const std::size_t begin = setup_.begin + tile, end = begin + std::min(kTile, params_.size() - tile);
    ForEachGroup(begin, end, update.groups.all(),
                 [&](std::size_t first, std::size_t last, const PartGroup* group) {
                   const float rate = group == nullptr ? update.learning_rate : group->learning_rate;
                   const float scale = group == nullptr ? update.scale : group->scale;
                   if (group != nullptr && rate == 0) return;
                   const std::size_t at = first - setup_.begin, size = last - first;
                   const float* values = gradient.data() + at;
                   if (scale != 1) {
                     SimdCall<ScaleKernel>(values, static_cast<float*>(scaled), size, scale);
                     values = scaled;
                   }
                   float* moments[OptimizerRule::kMostMoments] = {};
                   for (std::size_t m = 0; m < rule_.moments(); ++m) moments[m] = moments_[m].data() + at;
                   rule_.Apply(step, rate, exact + at, values, moments, size);
                 });
  }
  if (coder_ != nullptr) {
    has_delta_ = coder_->Encode(moments_.back().span(), params_.span(), delta_.span());
    if (!has_delta_) std::ranges::copy(moments_.back(), params_.begin());  // not finite: whole
  }
  ++version_;
  ++updates_;
  steps_ += update.steps;
  sequences_.Set({update.worker, update.sequence, version_});
}

void PartState::Keep(std::uint64_t mark) noexcept {
  std::ranges::copy(params_, kept_.values[0].begin());
  for (std::size_t m = 0; m < moments_.size(); ++m)
    std::ranges::copy(moments_[m], kept_.values[1 + m].begin());
  kept_.mark = mark;
  kept_.version = version_;
  kept_.updates = updates_;
}

void PartState::GoBack() noexcept {
  TRIREME_CHECK(kept_.mark.has_value());
  std::ranges::copy(kept_.values[0], params_.begin());
  for (std::size_t m = 0; m < moments_.size(); ++m)
    std::ranges::copy(kept_.values[1 + m], moments_[m].begin());
  has_delta_ = false;
  kept_.version = ++version_;
  updates_ = kept_.updates;
}

void PartState::MakeRoomForMark() {
  if (!kept_.values.empty()) return;
  std::vector<AlignedBuffer<float>> values;
  for (std::size_t i = 0; i < 1 + moments_.size(); ++i) values.emplace_back(setup_.size);
  kept_.values = std::move(values);
}

void PartState::SetNote(std::string_view name, std::string_view value) noexcept {
  const auto it = notes_.find(name);
  TRIREME_CHECK(it != notes_.end());
  it->second.assign(value);
}

void PartState::MakeRoomForNote(std::string_view name, std::size_t length) {
  auto it = notes_.find(name);
  if (it == notes_.end()) it = notes_.emplace(name, "").first;
  if (it->second.capacity() < length) it->second.reserve(length);
}

const std::string& PartState::NoteOf(std::string_view name) const {
  static const std::string kNone;
  const auto it = notes_.find(name);
  return it == notes_.end() ? kNone : it->second;
}

}  // namespace trireme
