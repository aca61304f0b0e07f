// Actors of other processes, on this host or others, who send to learners of this one; remote_actor.h is their side.
//
// An actor has a stream of its own, and speaks first:
//
//   {"hello": version}       {"welcome": settings of the run, TOML; "seed": ..., "index": ...}: as whom it collects. Where runs have
//                            names (Terms::run), also "run"; an actor that collects for one says it with its hello
//   {"ready": looks}         a policy, when there is one. `looks`: what environment and network are there, which must be those here
//   a trajectory             a policy, once the trajectory is on its way to a learner
//   a request for choices    these, with central inference (Terms::inference). Policies then say that there is one, and no more
//
// A trajectory goes to the learner with room who was given the fewest: those of a process move in step, so their policies are one.
// Where there is no room it waits here, and its actor is not answered. An actor may be kWindow trajectories
// ahead of the answers; so much is held for it and no more. Their numbers count from 1: each is learned from once.
// What was on its way when a stream broke is lost; the actor comes back as another one. Streams close with
// kRunIsOver, or for a reason that begins with kComesBack.
//
// Versions of policies are counted here for actors. A trajectory has the version that learners know: those in step count alike
// (LearnerEnd::CountFrom), so it is as old for one as for another. Actors are given the newest of any learner.
//
// Thread safety: whoever runs the transport calls the handler; the other methods may be called by all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/experience/desk_choices.h"
#include "trireme/experience/trajectory_message.h"
#include "trireme/experience/trajectory_sink.h"
#include "trireme/rpc/transport.h"

namespace trireme {

inline constexpr std::string_view kRunIsOver = "the run is over";
inline constexpr std::string_view kComesBack = "later: ";
inline constexpr std::size_t kWindow = 2;

class ActorDesk final : public ServerTransport::Handler {
 public:
  struct Terms {
    std::string version = {};   // of the program
    std::string run = {};       // its name, where actors might come from another one
    std::string settings = {};  // of the run
    std::string looks = {};
    TrajectoryShape shape = {};
    int own_actors = 0;  // those with the first indices, who have no need to join
    int learners = 1;    // of the run, of whom some are here
    CentralInference* inference =
        nullptr;  // what chooses for actors, and outlives the desk; null: each for itself
  };
  // For `learners` of this process, over `transport`, which outlives it. `say` is given lines for people.
  ActorDesk(ServerTransport& transport, Terms terms, int learners,
            std::function<void(const std::string&)> say);

  // From now on `channel` is sent to as well, until it is detached. Its learner is the `rank`th of the run; random streams of
  // actors that join follow from `seed`.
  void Attach(int learner, TrajectorySink& channel, int rank, std::uint64_t seed);
  void Detach(int learner);
  // The settings of actors that join from now on.
  void SetSettings(std::string settings);
  // There may be room for what waits: hands it on. Only for whoever calls the handler.
  void Serve();
  // Nothing is chosen any more. Called when the transport does not run, before it goes.
  void EndChoices() { choices_.reset(); }
  // From now on takes leave of the actors, also of those who come. `over`: so is the run; else they wait for it to come back.
  void TakeLeave(bool over);
  // Whether that is done.
  bool left() const { return left_.load(); }
  // Who has joined and is there.
  int actors() const { return ready_.load(); }
  // For how many seconds nothing has come but trajectories without choices (NoChoices); 0: that is not so.
  double SecondsWithoutChoices() const;

  void OnOpen(PeerId peer, const std::string& address) override;
  void OnMessage(PeerId peer, Incoming& message) override;
  void OnClose(PeerId peer) override;
  Deadline OnTime(Deadline now) override;

 private:
  struct Learner {
    TrajectorySink* channel = nullptr;
    std::uint64_t seed = 0, rank = 0;
    std::uint64_t given = 0;  // trajectories, by now
  };
  // A policy that an actor was given, as versions are counted here, and by learners.
  struct Given {
    std::uint64_t version = 0, learners = 0;
  };
  struct Peer {
    std::string address;
    bool greeted = false, ready = false, owed = false;  // owed: the first policy
    bool late = false;                                  // came when this took leave of an interrupted run
    int index = 0;
    std::uint64_t seed = 0;
    std::uint64_t began = 0;       // where actors do not choose: the newest version when its trajectory did
    std::uint64_t number = 0;      // of its last trajectory
    std::deque<Given> given = {};  // those it may still collect with, the newest last
    double opened_s = 0;
    std::deque<Trajectory> waiting = {};
  };

  // Why streams close when this takes leave.
  std::string Farewell() const;
  // With the lock:
  void Greet(PeerId id, Peer& peer, const std::string& text);
  void CheckLooks(const std::string& text) const;
  void Take(PeerId id, Peer& peer, Incoming& message);
  void TakeTrajectory(PeerId id, Peer& peer, std::uint64_t number, Incoming& message);
  void Refuse(PeerId id, const Peer& peer, const Error& why);
  // Of all learners; null: there is none.
  std::shared_ptr<const PublishedPolicy> Newest() const;
  // Hands on what waits, the oldest first, and answers.
  void ServeLine();
  bool HandOn(Trajectory& trajectory);
  // The newest, or again the last if there is none any more. False when there never was one.
  bool SendPolicy(PeerId id, Peer& peer);

  ServerTransport& transport_;
  Terms terms_;  // guarded by the mutex
  const std::function<void(const std::string&)> say_;
  std::mutex mutex_;  // guards:
  std::vector<Learner> learners_;
  // Of the handler alone:
  std::optional<DeskChoices> choices_;
  std::map<PeerId, Peer> peers_;
  std::deque<PeerId> line_;                      // whose trajectories wait, as they came
  std::vector<Trajectory> spare_;                // memory
  std::uint64_t joined_ = 0;                     // actors so far
  std::shared_ptr<const PublishedPolicy> sent_;  // the last that was sent
  std::uint64_t sent_version_ = 0;
  Outgoing sent_message_;
  double leaves_by_s_ = 0;
  std::atomic<int> ready_{0};
  std::atomic<double> no_choices_since_s_{0};  // 0: the last trajectory had them
  std::atomic<bool> leaves_{false}, over_{false}, left_{false};
};

}  // namespace trireme
