#include "trireme/train/ledger.h"

#include <utility>

#include "trireme/base/system.h"

namespace trireme {

void Ledger::GoOn(const RunProgress& earlier) {
  if (!earlier.per_worker.empty()) own_ = earlier.per_worker[links_.everyone().rank()];
  earlier_ = own_;
  earlier_wall_s_ = earlier.wall_s;
  earlier_cpu_s_ = earlier.cpu_s;
  earlier_traffic_ = {.bytes = earlier.bytes, .messages = earlier.messages};
  earlier_rounds_ = earlier.rounds;
}

void Ledger::WaitsFor(const ReceivedExperience* receives) {
  received_before_ = received();
  receives_ = receives;
}

ReceivedExperience Ledger::received() const {
  ReceivedExperience all = received_before_;
  if (receives_ != nullptr) all += *receives_;
  return all;
}

double Ledger::wall_s() const { return earlier_wall_s_ + MonotonicSeconds() - options_.started_s; }

Traffic Ledger::traffic() const {
  Traffic traffic = links_.traffic();
  traffic += links_.store().traffic();
  traffic -= aside_;
  traffic.idle_s += received().waited_s;
  return traffic;
}

void Ledger::Aside(const std::function<void()>& act) {
  const Traffic before = links_.everyone().traffic();
  act();
  Traffic spent = links_.everyone().traffic();
  spent -= before;
  spent.idle_s = 0;
  aside_ += spent;
}

std::vector<std::string> Ledger::GatherAside(std::string bytes) {
  std::vector<std::string> all;
  Aside([&] { all = links_.everyone().Gather(std::move(bytes)); });
  return all;
}

void Ledger::Gather() {
  accounts_.clear();
  for (const std::string& account : GatherAside(Own().Encode())) {
    const bool there = !account.empty();
    accounts_.push_back(there ? WorkerAccount::Decode(account) : WorkerAccount());
  }
}

void Ledger::GatherOrKeepOwn() {
  try {
    Gather();
  } catch (const Error&) {
    KeepOwn();
  }
}

void Ledger::SumInto(RunProgress& progress, bool asynchronous) const {
  progress.wall_s = wall_s();
  progress.cpu_s = earlier_cpu_s_;
  Traffic total = earlier_traffic_;
  progress.per_worker.clear();
  for (const WorkerAccount& account : accounts_) {
    progress.cpu_s += account.cpu_s;
    total += account.traffic;
    progress.per_worker.push_back(account.facts);
  }
  progress.bytes = total.bytes;
  progress.messages = total.messages;
  progress.rounds = earlier_rounds_ + RoundsOf(accounts_, asynchronous);
}

WorkerAccount Ledger::Own() {
  const Traffic spent = traffic();
  own_.idle_s = earlier_.idle_s + spent.idle_s;
  own_.bytes_saved = earlier_.bytes_saved + spent.bytes_saved;
  own_.compress_s = earlier_.compress_s + spent.compress_s;
  own_.decompress_s = earlier_.decompress_s + spent.decompress_s;
  WorkerAccount account{.facts = own_,
                        .traffic = spent,
                        .staleness = links_.store().staleness(),
                        .lag = received().lag,
                        .too_old = received().too_old,
                        .split = links_.split_facts(),
                        .links = links_.links()};
  if (links_.thread() != 0) return account;
  account.cpu_s = CpuSeconds() - options_.started_cpu_s;
  if (inference_ != nullptr) account.inference = inference_->facts();
  if (processes_ == nullptr) return account;
  account.cpu_s += processes_->cpu_s() - before_cpu_s_;
  account.env = processes_->failures();
  return account;
}

}  // namespace trireme
