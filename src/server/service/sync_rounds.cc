#include "trireme/server/service/sync_rounds.h"

#include <algorithm>
#include <cmath>

#include "trireme/optim/clip.h"
#include "trireme/server/service/notes.h"

namespace trireme {
namespace {

constexpr std::size_t kMostStatistics = 65536;

}  // namespace

SyncRounds::SyncRounds(ServedPart& served)
    : served_(served),
      taken_(served.terms().workers),
      begun_(served_.part().last_mark().has_value() || !served_.part().NoteOf(kCollectNote).empty()),
      round_({served.part().setup().begin, served.part().setup().size}, served.terms().workers) {
  // Workers look for it several times per lease; whoever takes their places meanwhile would do their work
  // again.
  if (served.recovered()) recovered_ = served_.all_back() + served_.lease();
  if (std::string_view note = served_.part().NoteOf(kBoundaryNote); !note.empty()) {
    const std::vector<std::uint64_t> names = CutNumbers<std::uint64_t>(note);
    if (names.size() != 2) Fail("the note of a boundary has {} numbers, not 2", names.size());
    first_boundary_ = names[0];
    boundary_ = names[1];
    state_ = note;
  }
  if (std::string_view note = served_.part().NoteOf(kCollectNote); !note.empty()) {
    for (const std::uint64_t number : CutNumbers<std::uint64_t>(note)) next_ = number + 1;
    last_.doubles = CutNumbers<double>(note);
    last_.bytes = note;
  }
}

// -------------------------------------------------------------------------------------------- who takes part

// The first server gives the ranks. Elsewhere whoever still holds the rank of a worker that has it from there
// has lost it. While those who took part before a restart may still come back, newcomers must not take their
// places.
void SyncRounds::BeforeJoin(const Greeting& greeting, bool known, Deadline now) {
  if (known) return;
  const Member* const holder = served_.members().WithRank(static_cast<int>(greeting.rank));
  if (!first() && holder != nullptr) {
    const Member lost = *holder;
    served_.Close(lost, fmt::format("{}another worker is worker {} now", kLater, lost.rank));
    served_.members().Leave(lost.id);
    Drop(lost, now);
  }
  if (recovered_ && !greeting.continues) {
    Fail("{}the server was started again and waits for its workers to come back first", kLater);
  }
}

void SyncRounds::Join(Member& member, const Greeting& greeting, bool known, const Header& request,
                      Deadline now) {
  const bool continues = greeting.continues;  // it is not to be brought in at a boundary
  // Whose place was given to another is not where it was; it learns that with its next request.
  if (continues && !known) member.active = member.rank == static_cast<int>(greeting.rank);
  taken_[member.rank] = true;
  if (!begun_ || continues) {
    if (!continues) member.active = true;
    served_.SendWelcome(member, request, {.number = next_});
    return;
  }
  Forget(member);  // what it began before
  member.active = false;
  if (first()) {
    newcomers_[member.id] = request;
    Advance(now);
  } else {
    if (greeting.anew >= 0) GoBack(static_cast<std::uint64_t>(greeting.anew), greeting.boundary);
    served_.SendWelcome(member, request, {});  // waited for from its first push on
  }
}

bool SyncRounds::Handle(Member& member, const Header& request, Incoming& message, Deadline now) {
  switch (request.kind) {
    case MessageKind::kPush:
      Push(member, request, message, now);
      return true;
    case MessageKind::kAskNorms:
      AskNorms(member, request, message, now);
      return true;
    case MessageKind::kCommit:
      Commit(member, request, message, now);
      return true;
    case MessageKind::kCollect:
      if (first()) Collect(member, request, message, now);
      return first();
    default:
      return false;
  }
}

void SyncRounds::Drop(const Member& member, Deadline now) {
  Forget(member);
  Advance(now);
}

// Gradients that the first server has counted are still added, here and elsewhere.
void SyncRounds::Forget(const Member& member) {
  newcomers_.erase(member.id);
  asking_.erase(member.rank);
  collect_.erase(member.rank);
  if (!first()) return;
  if (!decided_) {
    round_.Remove(member.rank);
  } else if (std::none_of(decided_->begin(), decided_->end(), [&](std::uint32_t rank) {
               const Member* const other = served_.members().WithRank(static_cast<int>(rank));
               return other != nullptr && other->id != member.id && other->active;
             })) {
    // Nobody is left who could complete the round.
    for (const std::uint32_t rank : *decided_) round_.Remove(static_cast<int>(rank));
    decided_.reset();
  }
}

std::vector<int> SyncRounds::Missing(const std::function<bool(int)>& has) const {
  std::vector<int> missing;
  for (int rank = 0; rank < served_.terms().workers; ++rank) {
    const Member* const member = served_.members().WithRank(rank);
    if ((!taken_[rank] || (member != nullptr && member->active)) && !has(rank)) missing.push_back(rank);
  }
  return missing;
}

Ranks SyncRounds::Participants() const {
  Ranks ranks;
  for (int rank = 0; rank < served_.terms().workers; ++rank) {
    const Member* const member = served_.members().WithRank(rank);
    if (round_.Has(rank) && member != nullptr && member->active)
      ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

bool SyncRounds::Complete(const std::function<bool(int)>& has, std::size_t present, bool needs_leader,
                          Deadline begun, Deadline now) {
  if (present == 0) return false;
  const std::vector<int> missing = Missing(has);
  if (missing.empty()) return true;
  const int leader = served_.members().leader();
  if (!recovered_ && static_cast<int>(present) >= served_.terms().workers - served_.terms().backup_workers &&
      (!needs_leader || leader < 0 || has(leader))) {
    return true;
  }
  if (now - begun <= served_.patience()) return false;
  // Alive, but not to be waited for any longer.
  for (const int rank : missing) {
    taken_[rank] = true;
    if (Member* const member = served_.members().WithRank(rank)) member->active = false;
    served_.SayOf(rank, fmt::format("has not come for {} s and is not waited for", served_.terms().round_s));
  }
  return true;
}

// Where every worker waits but not in the same operation, nobody would ever go on: those that are not where
// the leader is fall behind.
void SyncRounds::LeaderSetsThePace() {
  if (asking_.empty() || collect_.empty()) return;
  for (const auto& [id, member] : served_.members().all()) {
    if (member.active && !asking_.contains(member.rank) && !collect_.contains(member.rank)) return;
  }
  const auto leave_behind = [&](int rank, const Header& request) {
    if (Member* const member = served_.members().WithRank(rank)) SendBehind(*member, request);
  };
  if (asking_.contains(served_.members().leader())) {
    for (const auto& [rank, input] : collect_) leave_behind(rank, input.request);
    collect_.clear();
  } else {
    for (const auto& [rank, asking] : asking_) leave_behind(rank, asking.request);
    asking_.clear();
    round_.Clear();
    decided_.reset();
  }
}

bool SyncRounds::AwaitsALeader(Deadline now) const {
  if (collect_.empty() || !(collect_.begin()->second.request.flags & kBoundary)) return false;
  if (served_.members().leader() >= 0 || now - collect_begun_ > served_.patience()) return false;
  const auto& members = served_.members().all();
  return std::any_of(members.begin(), members.end(), [&](const auto& entry) {
    return entry.second.candidate && !newcomers_.contains(entry.first);
  });
}

void SyncRounds::AdmitNewcomers(std::uint32_t flags, std::uint64_t boundary) {
  for (const auto& [worker, request] : std::exchange(newcomers_, {})) {
    Member* const member = served_.members().Find(worker);
    if (member == nullptr) continue;
    member->active = true;
    served_.SendWelcome(*member, request,
                        {.number = next_, .flags = flags, .boundary = boundary, .state = state_});
  }
}

void SyncRounds::SendBehind(Member& member, const Header& request) {
  member.active = false;
  served_.SendParams(member, request, kBehind);
}

void SyncRounds::Advance(Deadline now) {
  if (recovered_ && now >= *recovered_) {
    if (begun_) taken_.assign(taken_.size(), true);
    recovered_.reset();
  }
  LeaderSetsThePace();
  AdvanceRound(now);
  const auto has = [&](int rank) { return collect_.contains(rank); };
  if (!AwaitsALeader(now) && Complete(has, collect_.size(), true, collect_begun_, now)) CompleteCollect();
  // Nobody is left to announce a boundary: the newcomers begin among themselves.
  // Nor does anybody when the run has ended, which the welcome says.
  const bool alone = !recovered_ && !served_.members().AnyActive();
  if (newcomers_.empty()) return;
  if (served_.finished()) {
    AdmitNewcomers(0);
  } else if (alone) {
    BeginAnew();
    AdmitNewcomers(kAnew, first_boundary_);
  }
}

void SyncRounds::OnTime(Deadline now) {
  Advance(now);
  const auto text = [&](const std::string& what, const std::function<bool(int)>& has) {
    std::string who;
    for (const int rank : Missing(has)) {
      const Member* const member = served_.members().WithRank(rank);
      who += fmt::format("{}worker {} ({})", who.empty() ? "" : ", ", rank,
                         member == nullptr
                             ? std::string("not there")
                             : fmt::format("heard {:.1f} s ago",
                                           std::chrono::duration<double>(now - member->heard).count()));
    }
    return fmt::format("{} waits for {}", what, who.empty() ? "another worker to complete it" : who);
  };
  const auto tell = [&](int rank, const Header& request, const std::string& waits) {
    if (const Member* const member = served_.members().WithRank(rank))
      served_.SendWaiting(*member, request, waits);
  };
  const std::string round =
      text(fmt::format("round {}", version()), [&](int rank) { return round_.Has(rank); });
  for (const auto& [rank, asking] : asking_) tell(rank, asking.request, round);
  const std::string operation =
      text(fmt::format("operation {}", next_), [&](int rank) { return collect_.contains(rank); });
  for (const auto& [rank, input] : collect_) tell(rank, input.request, operation);
  for (const auto& [worker, request] : newcomers_) {
    if (const Member* const member = served_.members().Find(worker)) {
      served_.SendWaiting(*member, request, "a newcomer joins when the others have ended their iteration");
    }
  }
}

// --------------------------------------------------------------------------------------- rounds of gradients

bool SyncRounds::BelongsToRound(Member& member, const Header& request) {
  if (request.version > version()) {
    Fail(
        "a request for version {} of the parameters, where this server has {}: it has lost updates, or "
        "serves another "
        "run",
        request.version, version());
  }
  if (request.version + 1 == version() && begun_) {
    AnswerRound(member, request);
    return false;
  }
  // The first server brings workers in; elsewhere they are in with their first push.
  if (request.version != version() || (first() && !member.active)) {
    SendBehind(member, request);
    return false;
  }
  member.active = true;
  return true;
}

void SyncRounds::Push(Member& member, const Header& request, Incoming& message, Deadline now) {
  const std::size_t statistics = served_.StatisticsOf(request);
  if (statistics > kMostStatistics) Fail("a push with {} statistics behind its gradient", statistics);
  AlignedBuffer<float> gradient(served_.part().params().size() + statistics,
                                AlignedBuffer<float>::kUninitialised);
  const ParameterGroups groups = served_.ReadGradient(request, message, gradient.span());
  if (!BelongsToRound(member, request)) return;
  if (request.boundary > (first() ? next_ : kMostUpdates)) Fail("a push after boundary {}", request.boundary);
  // One that is repeated brings the same values, which may be part of a sum already.
  if (!round_.Has(member.rank) || !decided_)
    round_.Add(member.rank, request, groups, std::move(gradient), now);
  asking_[member.rank] = {request, {}, now};
  Advance(now);
}

void SyncRounds::AskNorms(Member& member, const Header& request, Incoming& message, Deadline now) {
  const Ranks ranks = DecodeRanks(ReadText(message, request));
  if (!BelongsToRound(member, request)) return;
  if (!round_.Has(member.rank)) return SendBehind(member, request);
  asking_[member.rank] = {request, ranks, now};
  Advance(now);
}

void SyncRounds::Commit(Member& member, const Header& request, Incoming& message, Deadline now) {
  if (request.doubles > 0 || request.floats < 1 || request.floats > 1 + ParameterGroups::kMost) {
    Fail("a commit with {} scales", request.floats);
  }
  std::vector<float> scales(request.floats);
  ReadFloats(message, scales);
  const Ranks ranks = DecodeRanks(ReadText(message, request));
  for (const float scale : scales) {
    if (!(scale > 0 && scale <= 1)) Fail("a scale of {}", scale);
  }
  if (!BelongsToRound(member, request)) return;
  if (!round_.Has(member.rank)) return SendBehind(member, request);
  if (const std::size_t due = 1 + round_.GroupsOf(member.rank).size(); scales.size() != due) {
    Fail("a commit with {} scales, where {} are due", scales.size(), due);
  }
  asking_[member.rank] = {request, ranks, now};
  const bool known = first() ? decided_ == ranks : !ranks.empty() && round_.Present(ranks) == ranks;
  if (known) ApplyRound(ranks, scales);
  Advance(now);
}

void SyncRounds::AdvanceRound(Deadline now) {
  if (asking_.empty()) return;
  const Ranks participants = Participants();
  const auto has = [&](int rank) { return round_.Has(rank); };
  const bool complete = !decided_ && Complete(has, participants.size(), false, round_.begun(), now);
  if (first() && complete) decided_ = participants;
  if (first() && !decided_) return;
  if (served_.terms().servers == 1) {
    const GradientRound::Sum& sum = round_.SumOf(*decided_);
    const int rank = static_cast<int>(decided_->front());
    GroupNorms norms(round_.GroupsOf(rank));
    const PartRange& range = round_.range();
    norms.Add(range.begin, range.begin + range.size, sum.squares);
    return ApplyRound(*decided_, norms.ScalesFor(round_.RequestOf(rank).max_grad_norm).all());
  }
  for (const auto& [rank, asking] : std::map(asking_)) {
    Ranks ranks = first() ? *decided_ : asking.ranks.empty() ? participants : asking.ranks;
    if (first() && !std::binary_search(ranks.begin(), ranks.end(), static_cast<std::uint32_t>(rank)))
      continue;
    if (!first() && asking.ranks.empty() && !complete) continue;
    if (const Ranks present = round_.Present(ranks); present != ranks) {
      // Those who gave their gradient to the first server alone have died, or will be heard of soon.
      if (now - asking.since <= served_.lease()) continue;
      ranks = present.empty() ? participants : present;
    }
    if (ranks.empty()) continue;
    SendNorms(*served_.members().WithRank(rank), asking.request, ranks);
    if (round_.empty()) return;  // it was refused
  }
}

void SyncRounds::SendNorms(const Member& member, const Header& request, const Ranks& ranks) {
  const GradientRound::Sum& sum = round_.SumOf(ranks);
  if (!std::isfinite(sum.norm())) return RefuseRound();
  asking_.erase(member.rank);
  served_.Send(member, MakeMessage(served_.AnswerTo(request, MessageKind::kNorms), {}, sum.squares,
                                   EncodeRanks(ranks)));
}

void SyncRounds::ApplyRound(const Ranks& ranks, std::span<const float> scales) {
  const GradientRound::Sum& sum = round_.SumOf(ranks);
  if (!std::isfinite(sum.norm())) return RefuseRound();
  const Header& rule = round_.RequestOf(static_cast<int>(ranks.front()));
  PartUpdate update{.worker = 0,
                    .sequence = version() + 1,
                    .scale = scales[0],
                    .learning_rate = rule.learning_rate,
                    .mark = rule.boundary};

  std::size_t i = 0;
  for (const ParameterGroup& group : round_.GroupsOf(static_cast<int>(ranks.front())).all()) {
    update.groups.Append({group.begin, group.end, group.learning_rate, scales[++i]});
  }
  for (const std::uint32_t rank : ranks) update.steps += round_.RequestOf(static_cast<int>(rank)).steps;
  const std::size_t size = served_.part().params().size();
  std::string note;
  AppendNumbers<float>(note, sum.values.span().subspan(size));
  AppendNumbers<double>(note, sum.squares);
  note += EncodeRanks(ranks);
  served_.Apply(update, sum.values.span().first(size), note);
  begun_ = true;
  round_.Clear();
  decided_.reset();
  for (const auto& [rank, asking] : std::exchange(asking_, {})) {
    if (Member* const member = served_.members().WithRank(rank)) AnswerRound(*member, asking.request);
  }
}

void SyncRounds::GoBack(std::uint64_t begin, std::uint64_t end) {
  const std::optional<std::uint64_t> mark = served_.part().last_mark();
  if (!mark || *mark < begin || *mark >= end || !served_.GoBack(*mark)) return;
  round_.Clear();
  decided_.reset();
  for (const auto& [rank, asking] : std::exchange(asking_, {})) {
    if (Member* const member = served_.members().WithRank(rank)) SendBehind(*member, asking.request);
  }
  for (auto& [id, member] : served_.members().all()) member.active = false;
}

// What the last round gave.
void SyncRounds::AnswerRound(Member& member, const Header& request) {
  std::string_view note = served_.part().NoteOf(kRoundNote);
  if (note.empty()) return SendBehind(member, request);
  const std::vector<float> extras = CutNumbers<float>(note);
  const std::vector<double> squares = CutNumbers<double>(note);
  served_.SendRound(member, request, extras, squares, note);
}

void SyncRounds::RefuseRound() {
  for (const auto& [rank, asking] : std::exchange(asking_, {})) {
    const Member* const member = served_.members().WithRank(rank);
    if (member == nullptr) continue;
    served_.Close(*member,
                  fmt::format("the gradients of round {} add up to something that is not finite: training "
                              "has diverged, a smaller learning rate may help",
                              version()));
  }
  round_.Clear();
  decided_.reset();
}

}  // namespace trireme
