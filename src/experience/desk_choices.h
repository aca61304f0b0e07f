// Requests for choices of actors of other processes, on behalf of an actor desk: it reads and checks them, and answers when
// central inference has chosen.
//
// An actor asks for one thing at a time, and for each sample of a trajectory once before it sends this. It is waited for
// (CentralInference::Member) but between the last answer and the trajectory. One that is gone is forgotten once what it asked is
// answered.
//
// Thread safety: whoever runs the transport calls all methods. Answers come from another thread, which wakes the transport.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/experience/central_inference.h"
#include "trireme/experience/choice_message.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class DeskChoices {
 public:
  // All of them outlive it. Where it goes while something is asked, it ends `inference`.
  DeskChoices(ServerTransport& transport, const TrajectoryShape& shape, CentralInference& inference)
      : transport_(transport), shape_(shape), inference_(inference) {}
  ~DeskChoices();

  // An actor whose draws follow from these is going to ask from now on, if it has not entered before.
  void Enter(PeerId id, std::uint64_t seed, std::uint32_t first_env);
  // Requires one who has entered. After the number was read. Throws Error when an actor would not ask this, or not now.
  void Ask(PeerId id, Incoming& message);
  // A trajectory has come. Throws Error unless all of it was chosen here.
  void EndTrajectory(PeerId id);
  void Leave(PeerId id);
  // Whether it has entered, and the first request of a trajectory comes next.
  bool begins(PeerId id) const;

  // Sends what was chosen by now.
  void Answer();
  // Whether there will be more to send.
  bool waiting() const { return !asked_.empty(); }

 private:
  // A request under way, which outlives its actor.
  struct Asked final : CentralInference::Question {
    Asked(DeskChoices& desk_choices, PeerId id) : choices(desk_choices), peer(id) {}
    void OnAnswer(bool chosen) override;

    DeskChoices& choices;
    PeerId peer;
    ChoiceRequest content;
    bool chosen = false;
  };
  struct Actor {
    Actor(CentralInference& inference, std::uint64_t seed, std::uint32_t first_env)
        : member(inference), seed(seed), first_env(first_env) {}

    CentralInference::Member member;
    std::uint64_t seed = 0;
    std::uint32_t first_env = 0;
    std::uint64_t samples = 0;  // of its trajectory that were asked for
    bool asks = false;
  };
  // Of a trajectory.
  std::uint64_t samples() const { return static_cast<std::uint64_t>(shape_.steps) * shape_.envs; }

  ServerTransport& transport_;
  const TrajectoryShape& shape_;
  CentralInference& inference_;
  std::map<PeerId, Actor> actors_;
  std::map<Asked*, std::unique_ptr<Asked>> asked_;
  std::vector<std::unique_ptr<Asked>> spare_;  // memory
  std::vector<Asked*> ready_;                  // scratch
  std::mutex mutex_;                           // guards:
  std::vector<Asked*> answered_;
};

}  // namespace trireme
