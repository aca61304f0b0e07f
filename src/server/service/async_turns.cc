#include "trireme/server/service/async_turns.h"

#include <algorithm>
#include <utility>

namespace trireme {

void AsyncTurns::Join(Member& member, const Greeting& greeting, bool known, const Header& request,
                      Deadline now) {
  // A newcomer starts level with the slowest. One that was here before a restart knows its clock.
  const bool returns = greeting.continues && now < served_.all_back();
  if (!known) {
    member.clock = returns ? greeting.clock : std::max(greeting.clock, served_.members().SlowestClock());
  }
  member.active = true;
  served_.SendWelcome(member, request, {});
}

bool AsyncTurns::Handle(Member& member, const Header& request, Incoming& message, Deadline now) {
  if (request.kind != MessageKind::kPush) return false;
  Push(member, request, message, now);
  return true;
}

void AsyncTurns::Push(Member& member, const Header& request, Incoming& message, Deadline now) {
  const ParameterGroups groups = served_.ReadGradient(request, message, gradient_.span());
  const ParameterPart& part = served_.part();
  Header applied = request;
  if (request.sequence > part.LastSequence(member.id)) {
    const float staleness = static_cast<float>(part.version() - request.version);
    const float rate = served_.terms().staleness_scaled ? 1 / (1 + staleness) : 1;
    PartUpdate update{.worker = member.id,
                      .sequence = request.sequence,
                      .steps = request.steps,
                      .learning_rate = rate * request.learning_rate};
    for (const ParameterGroup& group : groups.all()) {
      update.groups.Append({group.begin, group.end, rate * group.learning_rate});
    }
    served_.Apply(update, gradient_.span());
    applied.number = part.version();
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
    member.clock = std::max(member.clock, served_.members().SlowestClock());
    member.resting = false;
  }
  applied_[member.id] = applied;
  Advance(now);
}

// With bounded staleness others wait for its clock, which stands still from now on.
void AsyncTurns::Rest(Member& member, Deadline now) {
  if (std::exchange(member.resting, true)) return;
  Advance(now);
}

// Nobody knows how far those are that have not come back yet after a restart.
bool AsyncTurns::MayGoOn(const Member& member, Deadline now) const {
  if (served_.terms().pace != Pace::kSsp || served_.finished()) return true;
  if (now < served_.all_back()) return false;
  const std::uint64_t slowest = served_.members().SlowestClock();
  return member.clock <= slowest ||
         member.clock - slowest <= static_cast<std::uint64_t>(served_.terms().staleness_bound);
}

void AsyncTurns::Advance(Deadline now) {
  std::erase_if(applied_, [&](const auto& entry) {
    const Member* const member = served_.members().Find(entry.first);
    if (member == nullptr) return true;
    if (!MayGoOn(*member, now)) return false;
    served_.SendParams(*member, entry.second, entry.second.flags);
    return true;
  });
}

// They are alive but have asked for nothing for too long, while others wait for them.
void AsyncTurns::StopWaitingForIdle(Deadline now) {
  if (applied_.empty()) return;
  for (auto& [id, member] : served_.members().all()) {
    if (!member.active || applied_.contains(id) || now - member.asked <= served_.patience()) continue;
    member.active = false;
    served_.SayOf(
        member, fmt::format("has asked for nothing for {} s and is not waited for", served_.terms().round_s));
  }
}

void AsyncTurns::OnTime(Deadline now) {
  StopWaitingForIdle(now);
  Advance(now);
  for (const auto& [worker, request] : applied_) {
    const Member& member = *served_.members().Find(worker);
    const std::string for_whom =
        now < served_.all_back()
            ? "the server was started again and waits for all workers to come back"
            : fmt::format("worker {} has made {} pushes and waits for the slowest, which has made {}",
                          member.rank, member.clock, served_.members().SlowestClock());
    served_.SendWaiting(member, request, for_whom);
  }
}

}  // namespace trireme
