#include "trireme/store/schedule.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::vector<Schedule::Turn> Parse(std::string_view text) {
  std::vector<Schedule::Turn> turns;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    Schedule::Turn turn;
    const auto [after, error] = std::from_chars(at, end, turn.worker);
    if (error != std::errc() || after == end || (*after != '<' && *after != '>')) {
      Fail("schedule \"{}\": expected entries like \"0< 1< 0> 1>\" (worker, then < to pull or > to push)",
           text);
    }
    turn.operation = *after == '<' ? Schedule::Operation::kPull : Schedule::Operation::kPush;
    turns.push_back(turn);
    at = after + 1;
  }
  return turns;
}

}  // namespace

Schedule::Schedule(std::string_view text, int workers) : turns_(Parse(text)), left_(workers, false) {
  std::vector<std::vector<Operation>> by_worker(workers);
  for (const Turn& turn : turns_) {
    if (turn.worker < 0 || turn.worker >= workers) {
      Fail("schedule \"{}\": there is no worker {}; they are 0 to {}", text, turn.worker, workers - 1);
    }
    by_worker[turn.worker].push_back(turn.operation);
  }
  for (int worker = 0; worker < workers; ++worker) {
    const std::vector<Operation>& operations = by_worker[worker];
    bool alternates = !operations.empty() && operations.size() % 2 == 0;
    for (std::size_t i = 0; alternates && i < operations.size(); ++i) {
      alternates = operations[i] == (i % 2 == 0 ? Operation::kPull : Operation::kPush);
    }
    if (!alternates) {
      Fail("schedule \"{}\": worker {} must have turns that pull and push alternately, as in \"{}< {}>\"",
           text, worker, worker, worker);
    }
  }
}

// Requires the lock.
void Schedule::AwaitTurn(std::unique_lock<std::mutex>& lock, int worker, Operation operation) {
  TRIREME_CHECK(!left_[worker]);
  turned_.wait(lock, [&] { return !aborted_.empty() || turns_[Current()].worker == worker; });
  if (!aborted_.empty()) Fail("{}", aborted_);
  if (turns_[Current()].operation != operation) {
    Fail("schedule: worker {} is to {} but wants to {}; the algorithm must pull and push alternately", worker,
         operation == Operation::kPull ? "push" : "pull", operation == Operation::kPull ? "pull" : "push");
  }
}

// Requires the lock. The first turn from next_ on whose worker has not left; when all have, it does not
// matter which.
std::size_t Schedule::Current() const {
  std::size_t at = next_;
  for (std::size_t i = 1; i < turns_.size() && left_[turns_[at].worker]; ++i)
    at = (next_ + i) % turns_.size();
  return at;
}

// Requires the lock.
void Schedule::PassOn() {
  next_ = (Current() + 1) % turns_.size();
  turned_.notify_all();
}

void Schedule::Leave(int worker) {
  const std::lock_guard lock(mutex_);
  left_[worker] = true;
  turned_.notify_all();
}

void Schedule::Abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_.empty()) aborted_ = why;
  turned_.notify_all();
}

}  // namespace trireme
