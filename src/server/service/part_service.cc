#include "trireme/server/service/part_service.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trireme/base/simd.h"
#include "trireme/server/disk/last_sequences.h"
#include "trireme/server/service/sync_rounds.h"

namespace trireme {
namespace {

// A part remembers the last updates of as many workers.
constexpr int kMostOnTheirOwn = LastSequences::kMost;

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

PartService::PartService(ServerTransport& transport, const RunTerms& terms, int index,
                         std::unique_ptr<ParameterPart> part, Say say, bool recovered)
    : transport_(transport),
      terms_(terms),
      index_(index),
      part_(std::move(part)),
      members_(Seconds(terms.lease_s), terms.pace == Pace::kSync ? terms.workers : kMostOnTheirOwn),
      gradient_(part_->params().size()),
      recovered_(recovered),
      first_version_(part_->version()),
      all_back_(recovered ? Clock::now() + lease() : Deadline::min()),
      say_(std::move(say)) {
  if (terms.pace == Pace::kSync) rounds_ = std::make_unique<SyncRounds>(*this, recovered);
}

PartService::~PartService() = default;

// The first server gives the ranks. Elsewhere, in step, whoever still holds the rank of a worker that has it
// from there has lost it.
void PartService::Join(PeerId peer, const Greeting& greeting, std::uint64_t sequence, Deadline now,
                       const std::string& address) {
  const bool known = members_.Find(greeting.worker) != nullptr;
  const int wanted = static_cast<int>(greeting.rank);
  const Member* const holder = members_.WithRank(wanted);
  if (rounds_ && index_ != 0 && !known && holder != nullptr) {
    if (holder->peer) {
      transport_.Close(*holder->peer, fmt::format("{}another worker is worker {} now", kLater, wanted));
    }
    GiveUp(*holder, now);
  }
  if (rounds_ && rounds_->recovering() && !known && !greeting.continues) {
    Fail("{}the server was started again and waits for its workers to come back first", kLater);
  }
  const std::uint64_t slowest = members_.SlowestClock();
  Member& member = members_.Join(greeting.worker, wanted, peer, now);
  member.candidate = greeting.candidate;
  say_(fmt::format("part {}: worker {} {} from {}", index_, member.rank, known ? "is back" : "joined",
                   address));
  const Header request{.worker = greeting.worker, .sequence = sequence};
  if (rounds_) {
    // Whose place was given to another is not where it was; it learns that with its next request.
    if (greeting.continues && !known) member.active = member.rank == wanted;
    return rounds_->Join(member, request, greeting.continues, now);
  }
  // A newcomer starts level with the slowest. One that was here before a restart knows its clock.
  const bool returns = greeting.continues && now < all_back_;
  if (!known) member.clock = returns ? greeting.clock : std::max(greeting.clock, slowest);
  member.active = true;
  SendWelcome(member, request, 0);
}

void PartService::Handle(PeerId peer, const Header& request, Incoming& message, Deadline now) {
  Member* const member = members_.Find(request.worker);
  if (member == nullptr || member->peer != peer) {
    Fail("{}this worker was given up: it was not heard for {} s. It may join again", kLater, terms_.lease_s);
  }
  member->heard = member->asked = now;
  switch (request.kind) {
    case MessageKind::kPush:
      return rounds_ ? rounds_->Push(*member, request, message, now) : Push(*member, request, message, now);
    case MessageKind::kPull:
      SendParams(*member, request);
      if (request.flags & kResting) Rest(*member, now);
      return;
    case MessageKind::kFetch:
      return Fetch(*member, request);
    case MessageKind::kFinish:
      return Finish(*member, request, now);
    case MessageKind::kEcho:
      return Echo(*member, request, message);
    case MessageKind::kLeave:
      return GiveUp(*member, now);
    case MessageKind::kAskNorms:
      if (rounds_) return rounds_->AskNorms(*member, request, message, now);
      break;
    case MessageKind::kCommit:
      if (rounds_) return rounds_->Commit(*member, request, message, now);
      break;
    case MessageKind::kCollect:
      if (rounds_ && index_ == 0) return rounds_->Collect(*member, request, message, now);
      break;
    default:
      break;
  }
  Fail("a request of kind {} has no place here", static_cast<std::uint32_t>(request.kind));
}

// A worker tries how fast the way is.
void PartService::Echo(const Member& member, const Header& request, Incoming& message) {
  constexpr std::uint64_t kLongest = 1 << 20;
  if (request.floats > 0 || request.doubles > 0 || request.bytes > kLongest)
    Fail("an echo of {} bytes", request.bytes);
  Send(member, MakeMessage(AnswerTo(request, MessageKind::kEcho), {}, {}, ReadText(message, request)));
}

void PartService::GiveUp(Member member, Deadline now) {
  members_.Leave(member.id);
  if (rounds_) {
    rounds_->Drop(member);
    rounds_->Advance(now);
  } else {
    AnswerApplied(now);
  }
}

// With bounded staleness others wait for its clock, which stands still from now on.
void PartService::Rest(Member& member, Deadline now) {
  if (std::exchange(member.resting, true)) return;
  AnswerApplied(now);
}

void PartService::Finish(Member& member, const Header& request, Deadline now) {
  if (!finished()) Note("finished", "yes");
  SendParams(member, request);
  AnswerApplied(now);
}

void PartService::ReadGradient(const Header& request, Incoming& message, std::span<float> values) const {
  const std::size_t size = part_->params().size();
  if (request.floats != values.size() || request.doubles > 0 || request.bytes > 0) {
    Fail("a gradient of {} floats, where {} are due", request.floats, values.size());
  }
  if (request.version > part_->version()) {
    Fail(
        "a gradient for version {} of the parameters, where this server has {}: it has lost updates, or "
        "serves another run",
        request.version, part_->version());
  }
  constexpr std::int64_t kMostSteps = 1'000'000'000'000;
  if (request.steps < 0 || request.steps > kMostSteps) Fail("a push of {} steps", request.steps);
  ReadFloats(message, values);
  if (!SimdCall<AllFinite>(static_cast<const float*>(values.data()), size) ||
      !std::isfinite(request.learning_rate) || !std::isfinite(request.special_rate) ||
      !std::isfinite(request.clip)) {
    Fail("a gradient with values that are not finite");
  }
}

// A disk that is full now may have room later.
void PartService::Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note) {
  try {
    part_->Apply(update, gradient, note);
  } catch (const Error& error) {
    Fail("{}{}", kLater, error.what());
  }
}

void PartService::Note(const std::string& name, const std::string& value) {
  try {
    part_->Note(name, value);
  } catch (const Error& error) {
    Fail("{}{}", kLater, error.what());
  }
}

void PartService::Push(Member& member, const Header& request, Incoming& message, Deadline now) {
  ReadGradient(request, message, gradient_.span());
  Header applied = request;
  if (request.sequence > part_->LastSequence(member.id)) {
    const float staleness = static_cast<float>(part_->version() - request.version);
    const float rate = terms_.staleness_scaled ? 1 / (1 + staleness) : 1;
    Apply({.worker = member.id,
           .sequence = request.sequence,
           .steps = request.steps,
           .learning_rate = rate * request.learning_rate,
           .special = {request.special_begin, request.special_end, rate * request.special_rate}},
          gradient_.span());
    applied.number = part_->version();
    applied.flags = 0;
  } else {
    applied.number = 0;
    applied.flags = kDuplicate;  // the answer was lost
  }
  if (request.sequence > member.counted) {
    member.counted = request.sequence;
    ++member.clock;
  }
  if (!member.active || member.resting) {
    member.active = true;
    member.clock = std::max(member.clock, members_.SlowestClock());
    member.resting = false;
  }
  applied_[member.id] = applied;
  AnswerApplied(now);
}

// Nobody knows how far those are that have not come back yet after a restart.
bool PartService::MayGoOn(const Member& member, Deadline now) const {
  if (terms_.pace != Pace::kSsp || finished()) return true;
  if (now < all_back_) return false;
  const std::uint64_t slowest = members_.SlowestClock();
  return member.clock <= slowest ||
         member.clock - slowest <= static_cast<std::uint64_t>(terms_.staleness_bound);
}

void PartService::AnswerApplied(Deadline now) {
  std::erase_if(applied_, [&](const auto& entry) {
    const Member* const member = members_.Find(entry.first);
    if (member == nullptr) return true;
    if (!MayGoOn(*member, now)) return false;
    SendParams(*member, entry.second, entry.second.flags);
    return true;
  });
}

// They are alive but have asked for nothing for too long, while others wait for them.
void PartService::LeaveThoseThatHang(Deadline now) {
  if (applied_.empty()) return;
  for (auto& [id, member] : members_.all()) {
    if (!member.active || applied_.contains(id) || now - member.asked <= patience()) continue;
    member.active = false;
    say_(fmt::format("part {}: worker {} has asked for nothing for {} s and is not waited for", index_,
                     member.rank, terms_.round_s));
  }
}

void PartService::Fetch(Member& member, const Header& request) {
  Header header = AnswerTo(request, MessageKind::kState);
  const std::size_t size = part_->params().size();
  header.number = part_->version();
  header.floats = size * (1 + part_->moment_count());
  MessageWriter message(header);
  std::memcpy(message.floats(), part_->params().data(), size * sizeof(float));
  for (std::size_t m = 0; m < part_->moment_count(); ++m) {
    std::memcpy(message.floats() + (m + 1) * size * sizeof(float), part_->moments(m).data(),
                size * sizeof(float));
  }
  Send(member, message.Take());
}

void PartService::OnTime(Deadline now) {
  for (const Member& member : members_.Expire(now)) {
    say_(fmt::format("part {}: worker {} was not heard for {} s and is given up", index_, member.rank,
                     terms_.lease_s));
    if (member.peer) {
      transport_.Close(*member.peer, fmt::format("{}worker {} was not heard for {} s", kLater, member.rank,
                                                 terms_.lease_s));
    }
    GiveUp(member, now);
  }
  if (rounds_) {
    rounds_->Advance(now);
    rounds_->TellWaiting(now);
    return;
  }
  LeaveThoseThatHang(now);
  AnswerApplied(now);
  for (const auto& [worker, request] : applied_) {
    const Member& member = *members_.Find(worker);
    const std::string for_whom =
        now < all_back_
            ? "the server was started again and waits for all workers to come back"
            : fmt::format("worker {} has made {} pushes and waits for the slowest, which has made {}",
                          member.rank, member.clock, members_.SlowestClock());
    SendWaiting(member, request, for_whom);
  }
}

Header PartService::AnswerTo(const Header& request, MessageKind kind, std::uint32_t flags) const {
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

void PartService::Send(const Member& member, Outgoing message) {
  if (member.peer) transport_.Send(*member.peer, std::move(message));
}

void PartService::SendWaiting(const Member& member, const Header& request, const std::string& for_whom) {
  Send(member, MakeMessage(AnswerTo(request, MessageKind::kWaiting), {}, {}, for_whom));
}

void PartService::SendParams(const Member& member, const Header& request, std::uint32_t flags,
                             std::span<const float> extras, std::span<const double> doubles,
                             std::string_view bytes) {
  Header header = AnswerTo(request, MessageKind::kParams, flags);
  header.clip = static_cast<double>(member.clock);
  const std::span<const float> params = part_->params();
  header.floats = params.size() + extras.size();
  header.doubles = doubles.size();
  header.bytes = bytes.size();
  MessageWriter message(header);
  std::memcpy(message.floats(), params.data(), params.size_bytes());
  if (!extras.empty())
    std::memcpy(message.floats() + params.size_bytes(), extras.data(), extras.size_bytes());
  if (!doubles.empty()) std::memcpy(message.doubles(), doubles.data(), doubles.size_bytes());
  if (!bytes.empty()) std::memcpy(message.bytes(), bytes.data(), bytes.size());
  Send(member, message.Take());
}

void PartService::SendWelcome(const Member& member, const Header& request, std::uint64_t number,
                              std::string_view state, std::uint32_t flags) {
  Header header = AnswerTo(request, MessageKind::kWelcome, flags);
  header.worker = static_cast<std::uint64_t>(member.rank);
  header.number = number;
  Send(member, MakeMessage(header, part_->params(), {}, state));
}

}  // namespace trireme
