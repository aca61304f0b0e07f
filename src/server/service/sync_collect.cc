// The collective operations of SyncRounds.
#include <utility>

#include "trireme/server/service/notes.h"
#include "trireme/server/service/sync_rounds.h"

namespace trireme {

void SyncRounds::Collect(Member& member, const Header& request, Incoming& message, Deadline now) {
  const auto operation = static_cast<Collective>(request.operation);
  if (request.floats > 0 || (operation != Collective::kSum && operation != Collective::kFirst &&
                             operation != Collective::kGather)) {
    Fail("an operation of kind {}", request.operation);
  }
  CollectInput input{request, ReadDoubles(message, request), ReadText(message, request)};
  if (request.number > next_) {
    Fail("operation {}, where this server is at {}: it has lost what was done, or serves another run",
         request.number, next_);
  }
  if (request.number + 1 == next_) return AnswerCollect(member, request);
  if (request.number != next_ || !member.active) return SendBehind(member, request);
  if (!collect_.empty()) {
    const CollectInput& other = collect_.begin()->second;
    if (other.request.operation != request.operation || other.doubles.size() != input.doubles.size()) {
      Fail("operation {}: the workers do different things", request.number);
    }
  } else {
    collect_begun_ = now;
  }
  collect_.insert_or_assign(member.rank, std::move(input));
  Advance(now);
}

void SyncRounds::CompleteCollect() {
  const int leader = served_.members().leader();
  const int root = collect_.contains(leader) ? leader : collect_.begin()->first;
  const Header request = collect_.at(root).request;
  // What is gathered goes to the leader in one message, and before that into a note.
  std::size_t gathered = 0;
  for (const auto& [rank, input] : collect_) gathered += input.bytes.size();
  const auto workers = static_cast<int>(collect_.size());
  if (request.operation == static_cast<std::uint32_t>(Collective::kGather) &&
      gathered > MostGathered(workers, served_.most_bytes()) * collect_.size()) {
    return RefuseCollect(fmt::format(
        "{} workers have brought {} bytes for their leader, and a server passes on {} at a time: use "
        "--store allreduce, or let them have less to bring",
        workers, gathered, served_.most_bytes()));
  }
  Collected result = Combine(collect_, static_cast<Collective>(request.operation), root);
  const bool open = (request.flags & kBoundary) != 0;
  if (open) NoteBoundary(next_ + 1, next_ + 1, result.bytes);
  NoteCollected(next_, result);
  begun_ = true;
  last_ = std::move(result);
  ++next_;
  for (const auto& [rank, input] : std::exchange(collect_, {})) {
    if (const Member* const member = served_.members().WithRank(rank)) AnswerCollect(*member, input.request);
  }
  if (open) AdmitNewcomers(kBoundary);
}

void SyncRounds::NoteBoundary(std::uint64_t first, std::uint64_t last, std::string_view state) {
  const std::uint64_t names[] = {first, last};
  std::string note;
  AppendNumbers<std::uint64_t>(note, names);
  note += state;
  served_.Note(kBoundaryNote, note);
  first_boundary_ = first;
  boundary_ = last;
  state_ = state;
}

void SyncRounds::RefuseCollect(const std::string& why) {
  for (const auto& [rank, input] : std::exchange(collect_, {})) {
    if (const Member* const member = served_.members().WithRank(rank)) served_.Close(*member, why);
  }
}

void SyncRounds::NoteCollected(std::uint64_t number, const Collected& result) {
  std::string note;
  AppendNumbers<std::uint64_t>(note, std::span(&number, 1));
  AppendNumbers<double>(note, result.doubles);
  note += result.bytes;
  served_.Note(kCollectNote, note);
}

// Gathered bytes are for the leader alone.
void SyncRounds::AnswerCollect(const Member& member, const Header& request) {
  const bool gathers = request.operation == static_cast<std::uint32_t>(Collective::kGather);
  const bool gets_bytes = !gathers || member.rank == served_.members().leader();
  const Header header =
      served_.AnswerTo(request, MessageKind::kCollected, boundary_ == next_ ? kBoundary : 0u);
  served_.Send(member, MakeMessage(header, {}, last_.doubles, gets_bytes ? last_.bytes : std::string_view()));
}

// Whoever comes back later was in an operation that is not theirs any more: its number is skipped. The boundary gets
// another name, so that what follows it is told from what is undone; its first one stays known, since those who begin
// here may be gone before they have told the other servers.
void SyncRounds::BeginAnew() {
  GoBack(first_boundary_, next_ + 2);
  NoteBoundary(first_boundary_, next_ + 2, state_);
  NoteCollected(next_ + 1, last_);
  next_ += 2;
}

}  // namespace trireme
