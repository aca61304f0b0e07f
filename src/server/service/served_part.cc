#include "trireme/server/service/served_part.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/base/simd.h"
#include "trireme/server/disk/last_sequences.h"
#include "trireme/server/payload.h"

namespace trireme {
namespace {

// A part remembers the last updates of as many workers.
constexpr int kMostOnTheirOwn = LastSequences::kMost;
constexpr const char* kFinishedNote = "finished";

// Whether all are finite: no exponent of ones only.
struct AllFinite {
  TRIREME_INLINE bool Run(const float* values, std::size_t n) {
    std::uint32_t others = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      others |= (bits & 0x7fffffffu) >= 0x7f800000u;
    }
    return others == 0;
  }
};

}  // namespace

ServedPart::ServedPart(ServerTransport& transport, const RunTerms& terms, int index,
                       std::unique_ptr<ParameterPart> part, Say say, bool recovered)
    : transport_(transport),
      terms_(terms),
      index_(index),
      part_(std::move(part)),
      codec_(MakeCodecOrNone(terms.compress)),
      members_(Seconds(terms.lease_s), terms.pace == Pace::kSync ? terms.workers : kMostOnTheirOwn),
      recovered_(recovered),
      all_back_(recovered ? Clock::now() + lease() : Deadline::min()),
      say_(std::move(say)) {
  if (terms.pace == Pace::kSync || terms.compress_params == kNoCodec) return;
  held_ = std::make_unique<HeldParams>(terms.compress_params, part_->params().size());
  delta_ = AlignedBuffer<std::byte>(held_->message_bytes());
}

std::size_t ServedPart::StatisticsOf(const Header& request) const {
  const std::size_t size = part_->params().size();
  if (codec_ == nullptr && request.encoded > 0) Fail("a compressed gradient, in a run without compression");
  if (codec_ != nullptr && request.encoded != codec_->bytes(size)) {
    Fail("a gradient of {} compressed bytes, where {} are due by {}", request.encoded, codec_->bytes(size),
         codec_->name());
  }
  const std::size_t plain = codec_ == nullptr ? size : 0;
  if (request.floats < plain) Fail("a gradient of {} floats, where {} are due", request.floats, plain);
  return request.floats - plain;
}

ParameterGroups ServedPart::ReadGradient(const Header& request, Incoming& message,
                                         std::span<float> values) const {
  const std::size_t size = part_->params().size(), statistics = StatisticsOf(request);
  if (size + statistics != values.size() || request.doubles > 0) {
    Fail("a gradient of {} floats, where {} are due", size + statistics, values.size());
  }
  if (request.version > part_->version()) {
    Fail(
        "a gradient for version {} of the parameters, where this server has {}: it has lost updates, or "
        "serves another run",
        request.version, part_->version());
  }
  constexpr std::int64_t kMostSteps = 1'000'000'000'000;
  if (request.steps < 0 || request.steps > kMostSteps) Fail("a push of {} steps", request.steps);
  if (codec_ != nullptr) codec_->Decode(ReadEncoded(message, request).span(), values.first(size));
  ReadFloats(message, codec_ == nullptr ? values : values.subspan(size));
  if (!SimdCall<AllFinite>(static_cast<const float*>(values.data()), size) ||
      !std::isfinite(request.learning_rate) || !std::isfinite(request.max_grad_norm)) {
    Fail("a gradient with values that are not finite");
  }
  return DecodeGroups(ReadText(message, request), terms_.params);
}

// What fails is the disk: no message is as long as the longest record. Somebody may mend it while the workers wait; in the
// end they give the server up, and say why.
void ServedPart::Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note) {
  try {
    part_->Apply(update, gradient, note);
  } catch (const Error& error) {
    Fail("{}{}", kLater, error.what());
  }
}

void ServedPart::Note(const std::string& name, const std::string& value) {
  try {
    part_->Note(name, value);
  } catch (const Error& error) {
    Fail("{}{}", kLater, error.what());
  }
}

bool ServedPart::GoBack(std::uint64_t mark) {
  try {
    const std::uint64_t before = part_->updates();
    if (!part_->GoBack(mark)) return false;
    say_(fmt::format("part {}: nobody has ended an iteration, and its {} updates are undone", index_,
                     before - part_->updates()));
    return true;
  } catch (const Error& error) {
    Fail("{}{}", kLater, error.what());
  }
}

bool ServedPart::finished() const { return !part_->NoteOf(kFinishedNote).empty(); }

void ServedPart::Finish() {
  if (!finished()) Note(kFinishedNote, "yes");
}

Header ServedPart::AnswerTo(const Header& request, MessageKind kind, std::uint32_t flags) const {
  return {.kind = kind,
          .worker = request.worker,
          .sequence = request.sequence,
          .version = part_->version(),
          .steps = part_->steps(),
          .number = request.number,
          .flags = flags | (finished() ? kFinished : 0u),
          .leader = members_.leader(),
          .members = static_cast<std::uint32_t>(members_.size())};
}

void ServedPart::Send(const Member& member, Outgoing message) {
  if (member.peer) transport_.Send(*member.peer, std::move(message));
}

void ServedPart::SendWaiting(const Member& member, const Header& request, const std::string& for_whom) {
  Send(member, MakeMessage(AnswerTo(request, MessageKind::kWaiting), {}, {}, for_whom));
}

Outgoing ServedPart::ParamsMessage(Header header, std::span<const std::byte> delta,
                                   std::span<const float> extras, std::span<const double> doubles,
                                   std::string_view bytes) const {
  const std::span<const float> params = delta.empty() ? part_->params() : std::span<const float>();
  header.encoded = static_cast<std::uint32_t>(delta.size());
  header.floats = params.size() + extras.size();
  header.doubles = doubles.size();
  header.bytes = bytes.size();
  MessageWriter message(header);
  const auto put = [](std::byte* to, const auto& from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof from[0]);
  };
  put(message.encoded().data(), delta);
  put(message.floats(), params);
  put(message.floats() + params.size_bytes(), extras);
  put(message.doubles(), doubles);
  put(message.bytes(), bytes);
  return message.Take();
}

void ServedPart::SendParams(const Member& member, const Header& request, std::uint32_t flags,
                            std::span<const float> extras, std::span<const double> doubles,
                            std::string_view bytes) {
  Header header = AnswerTo(request, MessageKind::kParams, flags);
  header.clock = member.clock;
  bool differs = false;
  if (held_ != nullptr) {
    header.held = held_->NextNumber();
    differs = held_->Encode(member.id, request.held, header.held, part_->params(), delta_.span());
  }
  Send(member,
       ParamsMessage(header, differs ? delta_.span() : std::span<std::byte>(), extras, doubles, bytes));
}

void ServedPart::SendRound(const Member& member, const Header& request, std::span<const float> extras,
                           std::span<const double> doubles, std::string_view bytes) {
  Header header = AnswerTo(request, MessageKind::kParams);
  header.clock = member.clock;
  Send(member, ParamsMessage(header, part_->delta(), extras, doubles, bytes));
}

void ServedPart::NoteWhole(const Member& member, Header& answer) {
  if (held_ == nullptr) return;
  answer.held = held_->NextNumber();
  held_->Hold(member.id, answer.held, part_->params());
}

void ServedPart::ForgetHeld(const Member& member) {
  if (held_ != nullptr) held_->Forget(member.id);
}

void ServedPart::SendWelcome(const Member& member, const Header& request, const WelcomeOf& welcome) {
  Header header = AnswerTo(request, MessageKind::kWelcome, welcome.flags);
  header.worker = static_cast<std::uint64_t>(member.rank);
  header.number = welcome.number;
  header.boundary = welcome.boundary;
  Send(member, MakeMessage(header, part_->params(), {}, welcome.state));
}

void ServedPart::Close(const Member& member, const std::string& why) {
  if (member.peer) transport_.Close(*member.peer, why);
}

void ServedPart::SayOf(int rank, const std::string& what) const {
  say_(fmt::format("part {}: worker {} {}", index_, rank, what));
}

}  // namespace trireme
