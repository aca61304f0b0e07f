#include "trireme/server/service/membership.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

Member& Membership::Join(std::uint64_t id, int rank, PeerId peer, Deadline now) {
  const auto taken = [&](int r) {
    const Member* const holder = WithRank(r);
    return holder != nullptr && holder->id != id;
  };
  if (const Member* const known = Find(id)) {
    rank = known->rank;
  } else if (rank < 0 || taken(rank)) {
    rank = LowestFreeRank();
  }
  if (places_ > 0 && rank >= places_) Fail("later: all {} places of this run are taken", places_);
  Member& member = members_[id];
  member.id = id;
  member.rank = rank;
  member.peer = peer;
  member.heard = member.asked = now;
  return member;
}

int Membership::LowestFreeRank() const {
  std::vector<bool> taken(members_.size() + 1);
  for (const auto& [id, member] : members_) {
    if (static_cast<std::size_t>(member.rank) < taken.size()) taken[member.rank] = true;
  }
  return static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

Member* Membership::Find(std::uint64_t id) {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

void Membership::RenewLease(std::uint64_t id, Deadline now) {
  if (Member* const member = Find(id)) member->heard = now;
}

void Membership::Disconnect(PeerId peer) {
  for (auto& [id, member] : members_) {
    if (member.peer == peer) member.peer.reset();
  }
}

std::vector<Member> Membership::Expire(Deadline now) {
  const Deadline before = std::exchange(expired_, now).value_or(now);
  if (now - before > lease_ / 2) {
    for (auto& [id, member] : members_) member.heard = std::min(now, member.heard + (now - before));
  }
  std::vector<Member> expired;
  std::erase_if(members_, [&](const auto& entry) {
    if (now - entry.second.heard <= lease_) return false;
    expired.push_back(entry.second);
    return true;
  });
  return expired;
}

int Membership::leader() const {
  int lowest = -1;
  for (const auto& [id, member] : members_) {
    if (member.active && member.candidate && (lowest < 0 || member.rank < lowest)) lowest = member.rank;
  }
  return lowest;
}

bool Membership::AnyActive() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.active; });
}

std::uint64_t Membership::SlowestClock() const {
  std::uint64_t slowest = UINT64_MAX;
  for (const auto& [id, member] : members_) {
    if (member.active && !member.resting) slowest = std::min(slowest, member.clock);
  }
  return slowest == UINT64_MAX ? 0 : slowest;
}

const Member* Membership::WithRank(int rank) const {
  for (const auto& [id, member] : members_) {
    if (member.rank == rank) return &member;
  }
  return nullptr;
}

Member* Membership::WithRank(int rank) { return const_cast<Member*>(std::as_const(*this).WithRank(rank)); }

}  // namespace trireme
