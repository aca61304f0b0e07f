// A given order of pulls and pushes, which makes an asynchronous run reproducible.
//
// Written as one entry per operation, worker first: "0< 1< 0> 1>" lets worker 0 pull, worker 1 pull, worker 0
// push and worker 1 push, and then starts again. A worker that comes early waits for its turn; a worker that
// has left has its turns skipped. Whose turn it is depends on who takes part and on the last turn taken, not
// on the order of leaving and joining: when all leave and join again, the schedule goes on where it was.
//
// Thread safety: all methods may be called by all workers at once.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class Schedule {
 public:
  enum class Operation { kPull, kPush };
  struct Turn {
    int worker = 0;
    Operation operation = Operation::kPull;
  };

  // Throws Error unless `text` can be read, and each of `workers` workers has turns in it that pull and push
  // alternately: with any other order a worker would wait for ever.
  Schedule(std::string_view text, int workers);

  // One round of it.
  const std::vector<Turn>& turns() const { return turns_; }

  // Blocks until it is this worker's turn, runs `operate` alone, and passes the turn on. Throws Error when
  // the schedule says that the worker's next operation is another one, or after Abort().
  template <class Operate>
  void InTurn(int worker, Operation operation, Operate&& operate) {
    std::unique_lock lock(mutex_);
    AwaitTurn(lock, worker, operation);
    operate();
    PassOn();
  }

  // The worker takes no further part: its turns are skipped.
  void Leave(int worker);
  // Everyone who waits, or will, gets an Error that says why; the first one counts.
  void Abort(const std::string& why = "another worker failed");

 private:
  void AwaitTurn(std::unique_lock<std::mutex>& lock, int worker, Operation operation);
  void PassOn();
  std::size_t Current() const;

  std::vector<Turn> turns_;  // constant
  std::mutex mutex_;         // guards what follows
  std::condition_variable turned_;
  std::size_t next_ = 0;    // behind the last turn taken, an index into turns_
  std::vector<bool> left_;  // by worker
  std::string aborted_;     // why; empty: it was not
};

}  // namespace trireme
