#include "caller.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::python {

namespace nb = nanobind;

namespace {

constexpr auto kIdle = std::chrono::milliseconds(100);
thread_local std::shared_ptr<Caller> current;

}  // namespace

std::shared_ptr<Caller> Caller::Current() { return current; }

Caller::Scope::Scope(std::shared_ptr<Caller> caller) : before_(std::exchange(current, std::move(caller))) {}
Caller::Scope::~Scope() { current = std::move(before_); }

void Caller::Serve(const std::shared_ptr<Caller>& caller, const std::function<void()>& work,
                   const std::function<void()>& idle) {
  Caller& self = *caller;
  std::exception_ptr failure;
  std::unique_lock lock(self.mutex_);
  self.serving_ = true;
  self.thread_ = std::this_thread::get_id();
  std::thread worker;
  try {
    worker = std::thread([&] {
      const Scope scope(caller);
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard ending(self.mutex_);
      self.ended_ = true;
      self.changed_.notify_all();
    });
  } catch (const std::system_error& error) {
    self.serving_ = false;
    Fail("cannot start a thread to train in: {}", error.code().message());
  }
  for (;;) {
    self.changed_.wait_for(lock, kIdle, [&] { return self.ended_ || !self.tasks_.empty(); });
    if (!self.tasks_.empty()) {
      Task& task = *self.tasks_.front();
      self.tasks_.pop_front();
      lock.unlock();
      self.Run(task);
      lock.lock();
      task.done = true;
      self.changed_.notify_all();
    } else if (self.ended_) {
      break;
    } else {
      lock.unlock();
      {
        const nb::gil_scoped_acquire python;
        idle();
      }
      lock.lock();
    }
  }
  self.serving_ = false;
  lock.unlock();
  worker.join();
  if (failure) std::rethrow_exception(failure);
}

void Caller::Run(Task& task) {
  if (interrupted_ && !task.always) {
    task.failure = interrupted_;
    return;
  }
  const nb::gil_scoped_acquire python;
  try {
    task.run();
  } catch (const nb::python_error& error) {
    task.failure = std::current_exception();
    if (error.matches(PyExc_KeyboardInterrupt)) interrupted_ = task.failure;
  } catch (...) {
    task.failure = std::current_exception();
  }
}

void Caller::Ask(const std::function<void()>& task, bool always) {
  {
    std::unique_lock lock(mutex_);
    if (serving_ && thread_ != std::this_thread::get_id()) {
      Task asked{task, always};
      tasks_.push_back(&asked);
      changed_.notify_all();
      changed_.wait(lock, [&] { return asked.done; });
      lock.unlock();
      if (asked.failure) std::rethrow_exception(asked.failure);
      return;
    }
  }
  const nb::gil_scoped_acquire python;
  task();
}

void InPython(const std::shared_ptr<Caller>& caller, const std::function<void()>& task, bool always) {
  if (caller) return caller->Ask(task, always);
  const nb::gil_scoped_acquire python;
  task();
}

}  // namespace trireme::python
