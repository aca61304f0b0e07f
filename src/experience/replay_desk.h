// A replay server: remembers what actors collect, for learners elsewhere who draw from it (replay_message.h). Actors speak to it as
// to a learner (actor_desk.h).
//
// The first learner says what is to be remembered, for which run; others, and those that come back, must agree. Another run
// is refused, unless that one has ended: then what it left gives way. Actors that come before a learner wait. Each draw and each insert waits until the rate limiter allows it: actors that are ahead are answered later, and so are
// learners.
//
// With a folder everything that was taken from an actor is found again by the next server there, however this one ended
// (replay_file.h).
//
// Thread safety: whoever runs the transport calls the handler; Leave, done and Sync may be called by all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/experience/actor_desk.h"
#include "trireme/experience/replay_file.h"
#include "trireme/experience/replay_message.h"

namespace trireme {

class ReplayDesk final : public ServerTransport::Handler {
 public:
  struct Options {
    std::string version = {};           // of the program
    std::filesystem::path folder = {};  // empty: what is remembered is gone with the server
    // Given lines for people.
    std::function<void(const std::string&)> say = [](const std::string&) {};
  };
  // `transport` outlives it. Throws Error when the folder cannot be used, or what is in it is damaged.
  ReplayDesk(ServerTransport& transport, Options options);
  ~ReplayDesk() override;

  // From now on takes leave of everybody, who may come back.
  void Leave() { leaves_ = true; }
  // Whether that is done, or the run is over and all have been told.
  bool done() const { return done_.load(); }
  // Waits until what was remembered before is on the disk. False where that failed.
  bool Sync() const { return !folder_ || folder_->Sync(); }

  void OnOpen(PeerId peer, const std::string& address) override;
  void OnMessage(PeerId peer, Incoming& message) override;
  void OnClose(PeerId peer) override;
  Deadline OnTime(Deadline now) override;

 private:
  class Memory;
  enum class Kind { kUnknown, kActor, kLearner };
  struct Peer {
    std::string address;
    Kind kind = Kind::kUnknown;
    bool joined = false;  // a learner: it has said what it wants
    double opened_s = 0;
    double answered_s = 0;                // a learner: last
    std::uint32_t learner = 0;            // its rank
    std::uint64_t drawn = 0, owed = 0;    // draws that it has had, and waits for
    std::deque<ReplayTurn> waiting = {};  // turns with those that it waits for
  };

  // What is in the folder.
  void Find();
  void Introduce(PeerId id, Peer& peer, Incoming& message);
  void Join(PeerId id, Peer& peer, Incoming& message);
  // Throws Error unless the run is the one that is remembered for.
  void CheckRun(const ReplayRun& run) const;
  // Throws Error when there is no room for it.
  void Begin(const ReplayRun& run);
  void Hear(PeerId id, Peer& peer, Incoming& message);
  void TakeTurn(PeerId id, Peer& peer, Incoming& message);
  // Answers draws and takes trajectories, as long as there is something that may go on.
  void GoOn();
  bool AnswerDraws();
  void EndAll(Deadline now);

  ServerTransport& transport_;
  const Options options_;
  std::optional<ReplayFolder> folder_;
  std::unique_ptr<Memory> memory_;      // null: nobody has said what to remember
  std::map<PeerId, Peer> peers_;        // actors are the desk's, too
  std::deque<PeerId> line_;             // whose turns wait, as they came
  std::vector<std::uint64_t> numbers_;  // scratch
  std::vector<float> errors_;           // scratch
  bool over_ = false;
  double leaves_by_s_ = 0;
  std::atomic<bool> leaves_{false}, done_{false};
};

}  // namespace trireme
