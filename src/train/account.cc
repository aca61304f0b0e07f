#include "trireme/train/account.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Its parts of fixed size, in order; the links follow.
template <class Account, class Visitor>
void VisitFixed(Account& account, Visitor&& visit) {
  visit(account.facts);
  visit(account.traffic);
  visit(account.staleness);
  visit(account.cpu_s);
}

}  // namespace

std::string WorkerAccount::Encode() const {
  std::string bytes;
  const auto append = [&](const auto& part) {
    static_assert(std::is_trivially_copyable_v<std::decay_t<decltype(part)>>);
    bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
  };
  VisitFixed(*this, append);
  for (const ProcessLink& link : links) append(link);
  return bytes;
}

WorkerAccount WorkerAccount::Decode(std::string_view bytes) {
  WorkerAccount account;
  const auto take = [&](auto& part) {
    TRIREME_CHECK(bytes.size() >= sizeof part);
    std::memcpy(&part, bytes.data(), sizeof part);
    bytes.remove_prefix(sizeof part);
  };
  VisitFixed(account, take);
  while (!bytes.empty()) take(account.links.emplace_back());
  return account;
}

std::uint64_t RoundsOf(const std::vector<WorkerAccount>& accounts, bool asynchronous) {
  std::uint64_t sum = 0, most = 0;
  for (const WorkerAccount& account : accounts) {
    sum += account.traffic.pushes;
    most = std::max(most, account.traffic.pushes);
  }
  return asynchronous ? sum : most;
}

void AddAccounts(const std::vector<WorkerAccount>& accounts, bool asynchronous, RunFacts& facts) {
  Staleness staleness;
  for (std::size_t worker = 0; worker < accounts.size(); ++worker) {
    facts.per_worker.push_back(accounts[worker].facts);
    staleness += accounts[worker].staleness;
    for (const ProcessLink& link : accounts[worker].links) {
      facts.links.push_back({.worker = static_cast<int>(worker),
                             .to = link.to,
                             .latency_s = link.latency_s,
                             .bytes_per_s = link.bytes_per_s,
                             .bytes = link.bytes,
                             .messages = link.messages,
                             .estimate_s = link.estimate_s(),
                             .waited_s = link.waited_s});
    }
  }
  if (!asynchronous) return;
  const auto end = std::find_if(staleness.pushes.rbegin(), staleness.pushes.rend(),
                                [](std::uint64_t count) { return count > 0; });
  facts.staleness.assign(staleness.pushes.begin(), end.base());
  facts.staleness_mean = staleness.mean();
  facts.staleness_most = staleness.most;
}

}  // namespace trireme
