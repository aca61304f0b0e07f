#include "trireme/tune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <list>
#include <memory>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/tune/joined_trials.h"
#include "trireme/tune/processor_claim.h"
#include "trireme/tune/trial_desk.h"
#include "trireme/tune/trial_process.h"

namespace trireme {
namespace {

constexpr int kLookMs = 250;  // signals, time and silence are looked for so often

// The trials of a desk that run in processes of this machine.
class LocalTrials {
 public:
  LocalTrials(TrialDesk& desk, const TuneOptions& options) : desk_(desk), options_(options) {
    for (int i = 0; i < options.parallel; ++i) slots_.emplace_back(desk.AddSeat());
  }

  // Ends what is to end, and begins what can begin.
  void Begin() {
    for (Slot& slot : slots_) {
      if (!slot.seat.idle()) continue;
      slot.process.reset();
      if (const std::optional<TrialOrder> order = desk_.Next(slot.seat))
        slot.process = std::make_unique<TrialProcess>(options_.command, *order, slot.claim.processor());
    }
  }

  // Until something has been said.
  void Wait() const {
    std::vector<pollfd> waits;
    for (const Slot& slot : slots_) {
      if (slot.process == nullptr) continue;
      waits.push_back({slot.process->socket(), POLLIN, 0});
      waits.push_back({slot.process->errors(), POLLIN, 0});
    }
    poll(waits.data(), waits.size(), kLookMs);
  }

  void Attend() {
    for (Slot& slot : slots_) {
      if (!slot.seat.idle()) Attend(slot);
    }
  }

 private:
  struct Slot {
    explicit Slot(TrialDesk::Seat& seat) : seat(seat) {}
    TrialDesk::Seat& seat;
    ProcessorClaim claim;
    std::unique_ptr<TrialProcess> process;
  };

  void Attend(Slot& slot) {
    TrialProcess& process = *slot.process;
    const bool open = process.Receive();
    while (!slot.seat.idle()) {
      const std::optional<std::string> line = process.TakeLine();
      if (!line) break;
      if (const std::optional<std::string> answer = desk_.Take(slot.seat, *line)) process.Answer(*answer);
    }
    if (slot.seat.idle()) return;
    if (!open) {
      desk_.Failed(slot.seat, "it " + process.Ended());
    } else if (MonotonicSeconds() > process.last_sign_s() + options_.silence_s) {
      desk_.Failed(slot.seat, fmt::format("it hung: nothing came for {:g} seconds", options_.silence_s));
    }
  }

  TrialDesk& desk_;
  const TuneOptions& options_;
  std::list<Slot> slots_;
};

}  // namespace

const TuneMethod& FindTuneMethod(std::string_view name) {
  std::vector<std::string_view> names;
  for (const TuneMethod& method : kTuneMethods) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  Fail("--method {}: expected one of {}", name, fmt::join(names, ", "));
}

TuneResult Tune(RunSettings& settings, const Space& space, const Aim& aim, const TuneOptions& options) {
  std::mutex mutex;  // guards the desk
  TrialDesk desk(settings, space, aim, options);
  LocalTrials local(desk, options);
  std::unique_ptr<JoinedTrials> joined;
  if (!options.listen.empty()) {
    joined = std::make_unique<JoinedTrials>(
        desk, mutex, options.transport->Listen(options.listen, options.security), options);
    options.listening(joined->address());
  }
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      if (joined) joined->Check();
      desk.Look();
      local.Begin();
      if (desk.Over()) break;
    }
    local.Wait();
    const std::lock_guard lock(mutex);
    local.Attend();
  }
  joined.reset();
  return desk.Result();
}

}  // namespace trireme
