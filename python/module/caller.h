// The main thread while it trains: it does for the workers what is to be done in Python.
//
// Python sees to signals in its main thread alone. So that Ctrl-C reaches an environment of this interpreter that is stuck,
// it is the main thread that steps it, whichever worker it is for: where there are several, they train in other threads
// meanwhile. One worker is the main thread itself.
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
  // The one whose run the calling thread prepares, or works for; null where there is none.
  static std::shared_ptr<Caller> Current();
  // While it lives, that is `caller`, in this thread.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<Caller> caller);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<Caller> before_;
  };

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
