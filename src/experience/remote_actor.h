// An actor's end of a channel whose learner is another process (actor_desk.h).
//
//   RemoteActorEnd end(place);
//   while (const auto welcome = end.Join()) {      // again whenever the learner was lost and has come back
//     ... a collector as welcome says, which may ask end.Choose() ...
//     end.Ready(looks, params);
//     while (policy = end.Newest()) { collect; if (!end.Send(trajectory)) break; }
//   }
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/experience/channel.h"
#include "trireme/experience/message_parts.h"
#include "trireme/rollout/rollout.h"
#include "trireme/rpc/transport.h"

namespace trireme {

// Where a learner is, and how to wait for it.
struct LearnerPlace {
  Transport* transport = nullptr;
  std::string address = {};
  Security security = {};
  std::string version = {};  // of the program
  std::string run = {};      // for which it collects; empty: the one that it finds there, and then no other
  double wait_s = 60;        // for a learner that cannot be reached, from when it was lost
  std::function<bool()> stop = [] { return false; };
};

class RemoteActorEnd final : public ActorEnd {
 public:
  // As whom it collects.
  struct Welcome {
    std::string settings;
    std::uint64_t seed = 0;
    int index = 0;
  };

  explicit RemoteActorEnd(LearnerPlace place);

  // Waits for a learner; nothing when the run is over or it is to stop. Throws Error when it is refused, or has waited
  // too long.
  std::optional<Welcome> Join();
  // After Join: what it has, for the learner to compare, and how many parameters its network has: 0 if the learner
  // chooses for it.
  void Ready(const std::string& looks, std::size_t params);

  // Both end (null, false) when the learner is lost, too: Join tells. Throw Error when the learner refuses something.
  std::shared_ptr<const PublishedPolicy> Newest() override;
  bool Send(Trajectory& trajectory) override;
  // Where the learner chooses: sends request.rows, and writes actions and `extra`. The same end, and Error.
  // request.first_env counts through the run, from `first_env` of the actor.
  bool Choose(const ActionRequest& request, std::uint32_t first_env, const EnvSpec& env);

 private:
  enum class State { kLost, kOpen, kOver };

  bool Greet(Welcome& welcome);
  // The next answer, or null when none came in so many seconds, the stream has ended, or it is to stop.
  Incoming* Answer(double seconds);
  bool TakeAnswer(bool wait);
  void TakePolicy(Incoming& message, std::uint64_t version);
  bool SendMessage(const Outgoing& message);
  // Tries with a deadline again and again. False: the stream has ended, or it is to stop.
  bool Persist(const std::function<bool(Deadline)>& act);
  // What the end of the stream means. Throws Error when the actor is not wanted.
  void Lost();

  const LearnerPlace place_;
  std::unique_ptr<Stream> stream_;
  State state_ = State::kLost;
  std::string run_;       // for which it collects
  std::string said_;      // the last reason
  bool welcome_ = false;  // on this stream
  // When the learner was there last: it has said something, or the stream on which it had welcomed us was lost.
  double heard_s_ = 0;
  double tried_s_ = -1;  // when to join was tried last
  std::size_t params_ = 0, unanswered_ = 0;
  std::uint64_t number_ = 0;  // of the last trajectory
  MessageMemory memory_;      // of trajectories
  std::shared_ptr<const PublishedPolicy> policy_;
};

}  // namespace trireme
