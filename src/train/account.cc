#include "trireme/train/account.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Its parts, in order; the links follow.
template <class Account, class Visitor>
void VisitParts(Account& account, Visitor&& visit) {
  visit(account.facts);
  visit(account.traffic);
  visit(account.staleness);
  visit(account.lag);
  visit(account.too_old);
  visit(account.cpu_s);
  visit(account.env.count);
  visit(account.env.last);
  visit(account.env.last_s);
  visit(account.env.warning);
  visit(account.inference);
  visit(account.split);
}

struct Writer {
  std::string bytes = {};

  template <class T>
  void operator()(const T& part) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    bytes += text;
  }
};

struct Reader {
  std::string_view bytes;

  template <class T>
  void operator()(T& part) {
    TRIREME_CHECK(bytes.size() >= sizeof part);
    std::memcpy(&part, bytes.data(), sizeof part);
    bytes.remove_prefix(sizeof part);
  }
  void operator()(std::string& text) {
    std::size_t size = 0;
    (*this)(size);
    TRIREME_CHECK(bytes.size() >= size);
    text = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
};

}  // namespace

std::string WorkerAccount::Encode() const {
  Writer write;
  VisitParts(*this, write);
  for (const ProcessLink& link : links) write(link);
  return std::move(write.bytes);
}

WorkerAccount WorkerAccount::Decode(std::string_view bytes) {
  WorkerAccount account;
  Reader read{bytes};
  VisitParts(account, read);
  while (!read.bytes.empty()) read(account.links.emplace_back());
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

namespace {

// Without the empty end.
std::vector<std::uint64_t> HistogramOf(const Staleness& staleness) {
  const auto end = std::find_if(staleness.pushes.rbegin(), staleness.pushes.rend(),
                                [](std::uint64_t count) { return count > 0; });
  return {staleness.pushes.begin(), end.base()};
}

}  // namespace

void AddAccounts(const std::vector<WorkerAccount>& accounts, bool asynchronous, RunFacts& facts) {
  Staleness staleness, lag;
  CentralInference::Facts inference;
  EnvFailures last;
  for (std::size_t worker = 0; worker < accounts.size(); ++worker) {
    facts.per_worker.push_back(accounts[worker].facts);
    staleness += accounts[worker].staleness;
    lag += accounts[worker].lag;
    facts.too_old += accounts[worker].too_old;
    inference += accounts[worker].inference;
    const EnvFailures& env = accounts[worker].env;
    facts.env_failures += env.count;
    if (env.count > 0 && env.last_s >= last.last_s) last = env;
    if (facts.env_warning.empty()) facts.env_warning = env.warning;
    const SplitFacts& split = accounts[worker].split;
    if (split.model_bytes > 0) facts.model_bytes.push_back(split.model_bytes);
    if (split.pipeline.stages > 0) {
      facts.bubbles.push_back(split.pipeline.bubble());
      facts.expected_bubble = split.pipeline.expected_bubble();
    }
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
  facts.env_last_failure = last.last;
  facts.lag = HistogramOf(lag);
  facts.lag_mean = lag.mean();
  facts.lag_most = lag.most;
  facts.inference_batches = inference.batches.Buckets();
  facts.inference_batch_mean = inference.batches.mean();
  facts.inference_incomplete = inference.incomplete;
  facts.inference_latency_us = inference.latency_us.Buckets();
  facts.inference_latency_us_mean = inference.latency_us.mean();
  if (!asynchronous) return;
  facts.staleness = HistogramOf(staleness);
  facts.staleness_mean = staleness.mean();
  facts.staleness_most = staleness.most;
}

}  // namespace trireme
