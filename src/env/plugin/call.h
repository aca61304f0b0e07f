// Calls into a plug-in, and what keeps its mistakes from passing unnoticed in a process that it shares:
//
//   - exceptions, and texts it returns, become Error;
//   - how floating-point numbers are rounded is afterwards as it was before, so that training keeps its bits;
//   - where it crashes, the program ends as it would otherwise, but one line names the plug-in and the function;
//   - where it calls exit(), a line names it likewise, and the exit code is not 0, whatever it said.
//
// Thread safety: everything here may be called from several threads at once.
#pragma once

#include <exception>
#include <string>

#include "trireme/base/error.h"

namespace trireme {

// While one lives, a crash of a plug-in is told: signal handlers are in place that otherwise leave everything as it was.
class CrashNotes {
 public:
  CrashNotes();
  ~CrashNotes();
  CrashNotes(const CrashNotes&) = delete;
  CrashNotes& operator=(const CrashNotes&) = delete;
};

// From now on an exit() in a plug-in is told. What is registered for an exit runs in the reverse order: so it is called
// again, once for each `since`, after whatever may have registered something: a library that was loaded, or, before the
// first step, what computes networks, which would take its code away from other threads.
void TellExits(const void* since);
// The exit code where a plug-in calls exit().
inline constexpr int kExitInPlugin = 2;

// The calling thread is in a plug-in's function. The texts outlive it; calls may be nested.
class PluginCall {
 public:
  PluginCall(const char* plugin, const char* function) noexcept;
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  const char* plugin() const { return plugin_; }
  const char* function() const { return function_; }

 private:
  const PluginCall* outer_;
  const char* plugin_;
  const char* function_;
  unsigned rounding_;
};

// The text as it may be shown; at most a line of it.
std::string PluginText(const char* text);

// Runs what calls `function` of `plugin` and returns its error. Throws Error where that is not null.
template <class Run>
void CallPlugin(const std::string& plugin, const char* function, const Run& run) {
  std::string failure;
  try {
    const PluginCall call(plugin.c_str(), function);
    const char* error = run();
    if (error == nullptr) [[likely]]
      return;
    failure = PluginText(error);
  } catch (const std::exception& error) {
    failure = "it threw " + PluginText(error.what());
  } catch (...) {
    failure = "it threw something that is no std::exception";
  }
  Fail("{} failed in {}: {}", plugin, function, failure);
}

}  // namespace trireme
