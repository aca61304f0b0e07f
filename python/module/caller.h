// The main thread while it trains: it does for the workers what is to be done in Python.
//
// Python sees to signals in its main thread alone. So that Ctrl-C reaches an environment of this interpreter that is stuck,
// the training runs in a thread of its own, and environments and callbacks in the main one, whichever worker they are for.
//
// Thread safety: Ask may be called from any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace trireme::python {

class Caller {
 public:
  // Runs `work` in a new thread, and here, until that ends, what others ask for, and `idle` now and then. Throws what `work`
  // throws. Call it without the interpreter's lock; `idle` has it, and throws nothing.
  static void Serve(const std::shared_ptr<Caller>& caller, const std::function<void()>& work,
                    const std::function<void()>& idle);
  // The one that serves the work that the calling thread is; null where there is none.
  static std::shared_ptr<Caller> Current();

  // Runs `task` with the interpreter's lock, in the thread that serves, or here if none does; waits for it, and throws what it
  // throws. Once a task has ended in a KeyboardInterrupt all later ones do, unless they are `always` run. Call it without
  // the lock, or from the thread that serves.
  void Ask(const std::function<void()>& task, bool always = false);

 private:
  struct Task {
    const std::function<void()>& run;
    const bool always;
    bool done = false;
    std::exception_ptr failure = {};
  };
  void Run(Task& task);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task*> tasks_;  // the rest is guarded by mutex_
  bool serving_ = false, ended_ = false;
  std::thread::id thread_;          // that serves
  std::exception_ptr interrupted_;  // of the thread that serves alone
};

// Runs `task` with the interpreter's lock, where `caller` does if there is one.
void InPython(const std::shared_ptr<Caller>& caller, const std::function<void()>& task, bool always = false);

}  // namespace trireme::python
