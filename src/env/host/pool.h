// The host processes of one environment: as many as asked for, each stepping parts of batches, and replaced when they
// are lost.
//
// Messages are JSON, one datagram each, both ways. Every request but `end` and `close` is answered by {} with what it
// is said to give, or by {"error": text}.
//   start     what the host program needs to know; with the bell. The first of all
//   prepare   makes an environment, which becomes the first copy that is opened
//   describe  tells what it is (gym/description.h), after some steps of it or of a copy
//   open      {part, index, drawn}: takes over HostPart[index] of a segment, and makes its copies; with the segment
//   draw      {part, env}: a picture of a copy of a part that is drawn, of the end of its episode where the last step has
//             ended it: {height, width}, with memory: red, green and blue of each pixel
//   save      {part}: an array of texts, one for each copy, empty where it cannot be saved; with memory: all states, one
//             after the other, their sizes in {"sizes": [...]}
//   load      {part, sizes}: the copies as they were saved; with memory
//   close     {part}
//   list      what environments there are; with memory: JSON, [[name, help], ...]
//   end       closes everything
//
// Thread safety: everything may be called from several threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/env/env.h"
#include "trireme/env/host/process.h"

namespace trireme {

struct HostLimits {
  int hosts = 1;
  double timeout_s = 60;   // 0: none
  int max_failures = 100;  // beyond it the run ends
};

class HostPool final : public EnvProcesses {
 public:
  // Starts all of them, side by side, with the message `start`. `env` is what messages call the environment.
  HostPool(std::string env, HostProgram program, std::string start, HostLimits limits);

  ~HostPool() override;  // ends all of them, side by side

  const std::string& env() const { return env_; }
  const HostLimits& limits() const { return limits_; }
  const HostPatience& patience() const { return patience_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  // Whether there are processors for hosts and this program at once, so that waiting for each other may be spinning.
  bool may_spin() const;

  // The answer of the first host to `message`. Throws Error, also where it answers with an error.
  HostProcess::Answer AskFirst(const std::string& message, HostWork work = HostWork::kMaking);

  // The host with the fewest copies, which gets so many more; and takes them back.
  int Occupy(int copies);
  void Release(int host, int copies);
  std::uint32_t NewPart() { return next_part_++; }

  // The process that is host `host` now.
  std::shared_ptr<HostProcess> Process(int host);
  // Blocks until it has started. Throws HostLost when it does not.
  void AwaitStart(HostProcess& process) const;
  // `lost` is no more: another process takes its place, unless one has already. Ends `lost`, counts a failure.
  // Throws Error when there have been too many; also where the run was asked to end and more processes than there are
  // hosts were given up since.
  void Replace(int host, const std::shared_ptr<HostProcess>& lost, const std::string& reason);

  // Failures of copies that were made anew in their process. Throws Error when there have been too many.
  void Count(int failures, const std::string& reason);
  // Said once.
  void Warn(const std::string& text);

  // Whether there has been an observation. What fails before that is wrong from the start and ends the run; what fails later
  // is counted and tried again.
  bool begun() const { return begun_; }
  void SetBegun() { begun_ = true; }

  EnvFailures failures() const override;
  double cpu_s() const override;
  void LogTo(const std::filesystem::path& path) override { launcher_.LogTo(path); }
  void SetStop(std::function<bool()> stop) override { patience_.SetStop(std::move(stop)); }

 private:
  struct Host {
    std::mutex mutex;  // guards `process` and `ended_cpu_s`
    std::shared_ptr<HostProcess> process;
    double ended_cpu_s = 0;  // of the processes before it
    int copies = 0;          // guarded by the pool's mutex_
  };
  std::shared_ptr<HostProcess> Launch(int host);

  const std::string env_;
  const HostProgram program_;
  const std::string start_;
  const HostLimits limits_;
  HostPatience patience_;
  HostLauncher launcher_;  // outlives the processes
  std::vector<std::unique_ptr<Host>> hosts_;
  std::atomic<std::uint32_t> next_part_{0};
  std::atomic<bool> begun_{false};
  mutable std::mutex mutex_;  // guards the rest
  EnvFailures failures_;
  int given_up_at_end_ = 0;  // processes, since the run was asked to end
};

}  // namespace trireme
