#include "trireme/server/service/part_service.h"

#include <cstring>
#include <utility>

#include "trireme/server/service/async_turns.h"
#include "trireme/server/service/sync_rounds.h"

namespace trireme {
namespace {

std::unique_ptr<Turns> MakeTurns(ServedPart& served) {
  if (served.terms().pace == Pace::kSync) return std::make_unique<SyncRounds>(served);
  return std::make_unique<AsyncTurns>(served);
}

}  // namespace

PartService::PartService(ServerTransport& transport, const RunTerms& terms, int index,
                         std::unique_ptr<ParameterPart> part, Say say, bool recovered)
    : served_(transport, terms, index, std::move(part), std::move(say), recovered),
      first_version_(served_.part().version()),
      turns_(MakeTurns(served_)) {}

void PartService::Join(PeerId peer, const Greeting& greeting, std::uint64_t sequence, Deadline now,
                       const std::string& address) {
  const bool known = served_.members().Find(greeting.worker) != nullptr;
  turns_->BeforeJoin(greeting, known, now);
  Member& member = served_.members().Join(greeting.worker, static_cast<int>(greeting.rank), peer, now);
  member.candidate = greeting.candidate;
  served_.SayOf(member, fmt::format("{} from {}", known ? "is back" : "joined", address));
  turns_->Join(member, greeting, known, {.worker = greeting.worker, .sequence = sequence}, now);
}

void PartService::Handle(PeerId peer, const Header& request, Incoming& message, Deadline now) {
  Member* const member = served_.members().Find(request.worker);
  if (member == nullptr || member->peer != peer) {
    Fail("{}this worker was given up: it was not heard for {} s. It may join again", kLater, terms().lease_s);
  }
  member->heard = member->asked = now;
  switch (request.kind) {
    case MessageKind::kPull:
      served_.SendParams(*member, request);
      if (request.flags & kResting) turns_->Rest(*member, now);
      return;
    case MessageKind::kFetch:
      return Fetch(*member, request);
    case MessageKind::kFinish:
      served_.Finish();
      served_.SendParams(*member, request);
      return turns_->Advance(now);
    case MessageKind::kEcho:
      return Echo(*member, request, message);
    case MessageKind::kLeave:
      return GiveUp(*member, now);
    default:
      if (turns_->Handle(*member, request, message, now)) return;
  }
  Fail("a request of kind {} has no place here", static_cast<std::uint32_t>(request.kind));
}

// A worker tries how fast the way is.
void PartService::Echo(const Member& member, const Header& request, Incoming& message) {
  constexpr std::uint64_t kLongest = 1 << 20;
  if (request.floats > 0 || request.doubles > 0 || request.bytes > kLongest)
    Fail("an echo of {} bytes", request.bytes);
  served_.Send(
      member, MakeMessage(served_.AnswerTo(request, MessageKind::kEcho), {}, {}, ReadText(message, request)));
}

void PartService::Fetch(const Member& member, const Header& request) {
  Header header = served_.AnswerTo(request, MessageKind::kState);
  const std::size_t size = part().params().size();
  header.number = part().updates();
  header.floats = size * (1 + part().moment_count());
  served_.NoteWhole(member, header);
  MessageWriter message(header);
  std::memcpy(message.floats(), part().params().data(), size * sizeof(float));
  for (std::size_t m = 0; m < part().moment_count(); ++m) {
    std::memcpy(message.floats() + (m + 1) * size * sizeof(float), part().moments(m).data(),
                size * sizeof(float));
  }
  served_.Send(member, message.Take());
}

void PartService::GiveUp(Member member, Deadline now) {
  served_.members().Leave(member.id);
  served_.ForgetHeld(member);
  turns_->Drop(member, now);
}

void PartService::OnTime(Deadline now) {
  for (const Member& member : served_.members().Expire(now)) {
    const std::string silent = fmt::format("was not heard for {} s", terms().lease_s);
    served_.SayOf(member, silent + " and is given up");
    served_.Close(member, fmt::format("{}worker {} {}", kLater, member.rank, silent));
    GiveUp(member, now);
  }
  turns_->OnTime(now);
}

}  // namespace trireme
