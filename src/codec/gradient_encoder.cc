#include "trireme/codec/gradient_encoder.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "trireme/base/system.h"

namespace trireme {
namespace {

std::string Section(int rank, const char* what) { return fmt::format("residual/{}/{}", rank, what); }

// Throws Error when there are not as many, or some are not finite.
std::vector<float> Read(const StateReader& in, const std::string& name, std::size_t size) {
  std::vector<float> values(size);
  in.Get<float>(name, std::span(values));
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    Fail("section \"{}\" has values that are not finite", name);
  return values;
}

}  // namespace

GradientEncoder::GradientEncoder(std::string_view codec, const std::vector<Part>& parts)
    : codec_(MakeCodec(codec)), parts_(parts) {
  for (const Part& part : parts_) {
    TRIREME_CHECK(part.begin == size_);
    states_.push_back(codec_->MakeState(part.size));
    size_ += part.size;
  }
}

void GradientEncoder::Encode(int part, std::span<const float> gradient, std::span<std::byte> message) {
  const double begun_s = MonotonicSeconds();
  codec_->Encode(gradient.subspan(parts_[part].begin, parts_[part].size), states_[part], message);
  seconds_ += MonotonicSeconds() - begun_s;
}

void GradientEncoder::TakeBack(int part, std::span<const float> gradient,
                               std::span<const std::byte> message) {
  const std::span<const float> own = gradient.subspan(parts_[part].begin, parts_[part].size);
  std::vector<float> sent(own.size());
  codec_->Decode(message, sent);
  AlignedBuffer<float>& residual = states_[part].residual;
  for (std::size_t i = 0; i < own.size(); ++i) residual[i] += sent[i] - own[i];
}

void GradientEncoder::Flush(std::span<float> gradient) {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    AlignedBuffer<float>& residual = states_[part].residual;
    for (std::size_t i = 0; i < residual.size(); ++i) gradient[parts_[part].begin + i] += residual[i];
    std::ranges::fill(residual, 0.0f);
  }
}

double GradientEncoder::ResidualNorm() const {
  double sum = 0;
  for (const CodecState& state : states_) {
    for (const float value : state.residual) sum += double{value} * value;
  }
  return std::sqrt(sum);
}

// What the codec remembers means nothing to another codec, or for other parts.
std::string GradientEncoder::Layout() const {
  return fmt::format("{}, {} parts", codec_->name(), parts_.size());
}

void GradientEncoder::Save(int rank, StateWriter& out) const {
  std::vector<float> values, memory;
  for (const CodecState& state : states_) {
    values.insert(values.end(), state.residual.begin(), state.residual.end());
    memory.insert(memory.end(), state.memory.begin(), state.memory.end());
  }
  out.Put<float>(Section(rank, "values"), values);
  out.Put<float>(Section(rank, "memory"), memory);
  out.PutText(Section(rank, "layout"), Layout());
}

int GradientEncoder::SavedIn(const StateReader& in) {
  int saved = 0;
  while (in.Has(Section(saved, "values")) || in.Has(Section(saved, "layout"))) ++saved;
  return saved;
}

std::vector<float> GradientEncoder::SumOfAll(const StateReader& in) {
  const int saved = SavedIn(in);
  if (saved == 0) return {};
  std::vector<float> sum(in.GetText(Section(0, "values")).size() / sizeof(float));
  for (int sender = 0; sender < saved; ++sender) {
    const std::vector<float> values = Read(in, Section(sender, "values"), sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

GradientEncoder::Loaded GradientEncoder::Load(int rank, int ranks, const StateReader& in) {
  const int saved = SavedIn(in);
  if (saved == 0) return Loaded::kNothing;
  const bool exactly = saved == ranks;
  std::size_t memory_size = 0;
  for (const CodecState& state : states_) memory_size += state.memory.size();
  // Of all senders, not only this one: whoever leads must know what is wrong with any of them before it begins.
  std::vector<float> values(size_), memory;
  for (int sender = 0; sender < saved; ++sender) {
    const std::vector<float> found = Read(in, Section(sender, "values"), size_);
    if (exactly && sender == rank) values = found;
    if (!exactly && rank == 0) std::ranges::transform(values, found, values.begin(), std::plus());
    if (!exactly || in.GetText(Section(sender, "layout")) != Layout()) continue;
    const std::vector<float> remembered = Read(in, Section(sender, "memory"), memory_size);
    if (sender == rank) memory = remembered;
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(parts_[part].begin), parts_[part].size,
                states_[part].residual.begin());
  }
  if (!exactly) return Loaded::kSummed;
  if (memory.empty()) return Loaded::kExactly;
  const float* from = memory.data();
  for (CodecState& state : states_) {
    std::copy_n(from, state.memory.size(), state.memory.begin());
    from += state.memory.size();
  }
  return Loaded::kExactly;
}

}  // namespace trireme
