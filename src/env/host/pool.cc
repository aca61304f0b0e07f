#include "trireme/env/host/pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "trireme/base/system.h"

namespace trireme {

HostPool::HostPool(std::string env, HostProgram program, std::string start, HostLimits limits)
    : env_(std::move(env)),
      program_(std::move(program)),
      start_(std::move(start)),
      limits_(limits),
      patience_(limits.timeout_s) {
  for (int host = 0; host < limits_.hosts; ++host) {
    hosts_.push_back(std::make_unique<Host>());
    hosts_.back()->process = Launch(host);
  }
}

HostPool::~HostPool() {
  for (const auto& host : hosts_) host->process->AskToEnd();
}

std::shared_ptr<HostProcess> HostPool::Launch(int host) {
  return std::make_shared<HostProcess>(launcher_, patience_, program_, fmt::format("host {}", host), start_);
}

bool HostPool::may_spin() const { return size() < UsableProcessors(); }

HostProcess::Answer HostPool::AskFirst(const std::string& message, HostWork work) {
  const std::shared_ptr<HostProcess> first = Process(0);
  AwaitStart(*first);
  try {
    HostProcess::Answer answer = first->Ask(message, work);
    if (!answer.error.empty()) throw HostLost(answer.error);
    return answer;
  } catch (const HostLost& lost) {
    Fail("{}: {}", env_, lost.what());
  }
}

int HostPool::Occupy(int copies) {
  const std::lock_guard lock(mutex_);
  const auto host = std::ranges::min_element(hosts_, {}, [](const auto& h) { return h->copies; });
  (*host)->copies += copies;
  return static_cast<int>(host - hosts_.begin());
}

void HostPool::Release(int host, int copies) {
  const std::lock_guard lock(mutex_);
  hosts_[host]->copies -= copies;
}

std::shared_ptr<HostProcess> HostPool::Process(int host) {
  Host& entry = *hosts_[host];
  const std::lock_guard lock(entry.mutex);
  return entry.process;
}

void HostPool::AwaitStart(HostProcess& process) const {
  try {
    process.WaitUntilStarted();
  } catch (const HostLost& lost) {
    throw HostLost(fmt::format("{}: its host process does not start: {}", env_, lost.what()));
  }
}

void HostPool::Replace(int host, const std::shared_ptr<HostProcess>& lost, const std::string& reason) {
  Host& entry = *hosts_[host];
  const std::lock_guard lock(entry.mutex);
  if (entry.process != lost) return;
  lost->Kill();
  Count(1, reason);
  if (lost->given_up() && patience_.StopRequested()) {
    const std::lock_guard counting(mutex_);
    if (++given_up_at_end_ > size()) {
      Fail("{} was asked to end, and its environments do not answer. The last time {}", env_, reason);
    }
  }
  entry.ended_cpu_s += lost->cpu_s();
  entry.process = Launch(host);
}

void HostPool::Count(int failures, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  failures_.count += failures;
  failures_.last = reason;
  failures_.last_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (failures_.count <= limits_.max_failures) return;
  Fail("{} has failed {} times, and env_max_failures is {}. The last time {}", env_, failures_.count,
       limits_.max_failures, reason);
}

void HostPool::Warn(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failures_.warning.empty()) failures_.warning = text;
}

EnvFailures HostPool::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

double HostPool::cpu_s() const {
  double sum = 0;
  for (const auto& host : hosts_) {
    const std::lock_guard lock(host->mutex);
    sum += host->ended_cpu_s + host->process->cpu_s();
  }
  return sum;
}

}  // namespace trireme
