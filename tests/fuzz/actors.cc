// A learner and what actors may send, and an actor and what a learner may answer.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "input.h"
#include "trireme/base/error.h"
#include "trireme/experience/actor_desk.h"
#include "trireme/experience/choice_message.h"
#include "trireme/experience/remote_actor.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme::fuzz {
namespace {

using Json = nlohmann::json;

constexpr int kActors = 3, kLearners = 2, kMostActions = 200;
constexpr std::size_t kParams = 3;
enum Action {
  kHello,
  kReady,
  kTrajectory,
  kChanged,
  kRaw,
  kLeave,
  kCut,
  kPublish,
  kTake,
  kAttach,
  kDetach,
  kTime,
  kAsk,
  kActions
};

// Two parts and masks, so that all checks have something to check.
TrajectoryShape Shape() {
  TrajectoryShape shape{.steps = 3, .envs = 2};
  shape.env.name = "Fuzz-v0";
  shape.env.obs.shape = {2};
  shape.env.action = ActionSpace::MultiDiscrete({2, 3});
  shape.env.masks = true;
  return shape;
}

Trajectory MakeTrajectory() {
  const TrajectoryShape shape = Shape();
  const RowLayout layout(shape.env);
  Trajectory trajectory(layout, 2, shape.steps, shape.envs);
  const std::array<float, 2> obs{};
  const std::array<std::uint8_t, 5> mask{1, 1, 1, 1, 1};
  for (std::size_t row = 0; row * layout.width() < trajectory.obs.size(); ++row)
    layout.Pack(reinterpret_cast<const std::byte*>(obs.data()), mask.data(), 1,
                trajectory.obs.data() + row * layout.width());
  trajectory.truncated[4] = 1;
  trajectory.truncated_samples = {4};
  trajectory.truncated_obs.assign(trajectory.obs.begin(), trajectory.obs.begin() + layout.width());
  return trajectory;
}

// For all environments of an actor.
Outgoing MakeRequest() {
  const Trajectory trajectory = MakeTrajectory();
  const TrajectoryShape shape = Shape();
  return EncodeRequest({.n = shape.envs, .rows = trajectory.obs.data()}, 0, RowLayout(shape.env).width());
}

struct Actor {
  PeerId number = 0;
  std::unique_ptr<Stream> stream;
  std::uint64_t sent = 0, version = 0;
};

class Stage {
 public:
  // `central`: the learner chooses for the actors.
  explicit Stage(bool central)
      : listener_(transport_.Listen("learner", {})),
        inference_({[](std::span<const float>) {}, Choose}, {.most_envs = 4}),
        desk_(*listener_,
              {.version = "1",
               .settings = "s",
               .looks = "looks",
               .shape = Shape(),
               .inference = central ? &inference_ : nullptr},
              kLearners, [](const std::string&) {}) {
    for (int i = 0; i < kLearners; ++i) {
      Attach(i);
      Publish(i, 0);
    }
  }

  void Act(Input& in) {
    const int action = in.Choice(kActions);
    const int which = in.Choice(kActors), learner = which % kLearners;
    Actor& actor = actors_[which];
    switch (action) {
      case kHello:
        Send(actor, TextMessage(Json{{"hello", in.Choice(8) == 7 ? "2" : "1"}}.dump()));
        break;
      case kReady:
        Send(actor, TextMessage(Json{{"ready", in.Choice(8) == 7 ? "other" : "looks"}}.dump()));
        break;
      case kAsk: {
        const Outgoing plain = MakeRequest();
        auto message = std::make_shared<AlignedBuffer<std::byte>>(plain->size());
        std::ranges::copy(*plain, message->begin());
        for (int changes = in.Choice(8) == 7 ? 1 + in.Choice(4) : 0; changes > 0; --changes) {
          const std::size_t at = in.Number(2) % message->size();
          (*message)[at] = static_cast<std::byte>(in.Byte());
        }
        Send(actor, message);
        break;
      }
      case kTrajectory:
      case kChanged: {
        Trajectory trajectory = MakeTrajectory();
        trajectory.policy = in.Choice(8) == 7 ? in.Byte() : actor.version;
        const Outgoing plain = EncodeTrajectory(trajectory, in.Choice(8) == 7 ? in.Byte() : ++actor.sent);
        auto message = std::make_shared<AlignedBuffer<std::byte>>(plain->size());
        std::ranges::copy(*plain, message->begin());
        for (int changes = action == kChanged ? 1 + in.Choice(4) : 0; changes > 0; --changes) {
          const std::size_t at = in.Number(2) % message->size();
          (*message)[at] = static_cast<std::byte>(in.Byte());
        }
        Send(actor, message);
        break;
      }
      case kRaw:
        Send(actor, TextMessage(in.Text()));
        break;
      case kLeave:
        actor.stream.reset();
        break;
      case kCut:
        transport_.Cut(actor.number);
        break;
      case kPublish:
        Publish(learner, in.Byte());
        break;
      case kTake:
        Take(learner);
        break;
      case kAttach:
        desk_.Detach(learner);
        Attach(learner);
        break;
      case kDetach:
        desk_.Detach(learner);
        break;
      case kTime:
        now_ += std::chrono::milliseconds(100 * in.Byte());
        break;
    }
    now_ += std::chrono::milliseconds(1);
    transport_.Pump(*listener_, desk_, now_);
    // What it chooses is there before what comes next, unless there is no policy yet.
    for (int i = 0; i < 10'000 && !inference_.idle(); ++i) std::this_thread::yield();
    transport_.Pump(*listener_, desk_, now_);
    for (Actor& each : actors_) ReadAnswers(each);
  }

 private:
  static void Choose(std::span<const ActionRequest> requests) {
    for (const ActionRequest& request : requests) {
      for (int i = 0; i < request.n; ++i) TRIREME_CHECK(request.masks[5 * i] <= 1);
      for (int i = 0; i < 2 * request.n; ++i) TRIREME_CHECK(request.obs[i] == request.obs[i]);
      std::fill_n(request.actions, 2 * request.n, 0.0f);
      std::fill_n(request.extra, request.n, 0.0f);
    }
  }
  void Attach(int learner) {
    if (channels_[learner]) inference_.Detach(*channels_[learner]);
    channels_[learner] = std::make_unique<MemoryChannel>(2, [](double) { Fail("nothing is there"); });
    learners_[learner] = channels_[learner]->MakeLearnerEnd();
    desk_.Attach(learner, *channels_[learner], learner, 7);
    inference_.Attach(*channels_[learner]);
  }
  // As learners in step do, one may be behind the other; here by as much as it likes.
  void Publish(int learner, std::uint8_t value) {
    learners_[learner]->Publish(std::vector<float>(kParams, value));
    newest_ = std::max(newest_, learners_[learner]->version());
  }
  // What a learner is given can be learned from.
  void Take(int learner) {
    Trajectory taken;
    if (!channels_[learner]->Offer(taken)) {  // it is full, so nobody waits
      learners_[learner]->Take(taken);
      const TrajectoryShape shape = Shape();
      TRIREME_CHECK(taken.steps == shape.steps && taken.envs == shape.envs);
      TRIREME_CHECK(taken.policy > 0 && taken.policy <= newest_);
      for (const float reward : taken.rewards) TRIREME_CHECK(reward == reward);
      return;
    }
    do {  // the empty one that was put in is the last
      learners_[learner]->Take(taken);
    } while (taken.samples() > 0);
  }
  void Send(Actor& actor, const Outgoing& message) {
    if (!actor.stream || actor.stream->closed()) {
      actor = {.number = ++last_, .stream = transport_.Connect("learner", {})};
    }
    actor.stream->Send(message, Deadline::min());
  }
  void ReadAnswers(Actor& actor) {
    if (!actor.stream) return;
    while (Incoming* const message = actor.stream->Receive(Deadline::min())) {
      if (message->size() < sizeof(PolicyHeader)) continue;
      PolicyHeader header;
      message->Read(std::as_writable_bytes(std::span(&header, 1)));
      actor.version = header.version;
    }
  }

  MemoryTransport transport_;
  PeerId last_ = 0;
  std::uint64_t newest_ = 0;  // of the versions that learners have published
  Deadline now_ = Clock::now();
  std::unique_ptr<ServerTransport> listener_;
  CentralInference inference_;
  ActorDesk desk_;
  std::array<std::unique_ptr<MemoryChannel>, kLearners> channels_;
  std::array<std::unique_ptr<LearnerEnd>, kLearners> learners_;
  std::array<Actor, kActors> actors_;
};

// What a learner answers is a message like any other.
void Answer(Input& in) {
  class Bytes final : public Incoming {
   public:
    explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
    std::size_t size() const override { return bytes_.size() - at_; }
    void Read(std::span<std::byte> to) override {
      std::ranges::copy(std::as_bytes(std::span(bytes_)).subspan(at_, to.size()), to.begin());
      at_ += to.size();
    }

   private:
    std::string bytes_;
    std::size_t at_ = 0;
  };
  const PublishedPolicy had{.version = 1, .params = std::vector<float>(kParams)};
  for (int i = 0; i < kMostActions && !in.empty(); ++i) {
    Bytes message(in.Text());
    try {
      const std::uint64_t version = ReadNumber(message);
      if (version == 0) {
        std::array<float, 4> actions;
        std::array<float, 2> extra;
        DecodeChoices(message, {.n = 2, .actions = actions.data(), .extra = extra.data()}, 0, 2);
        continue;
      }
      const auto policy = DecodePolicy(message, version, kParams, &had);
      TRIREME_CHECK(policy == nullptr || policy->params.size() == kParams);
    } catch (const Error&) {
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const auto join = [](InputWriter& w, int actor) {
    w.Byte(kHello).Byte(actor).Byte(0).Byte(kReady).Byte(actor).Byte(0);
  };
  const auto send = [](InputWriter& w, int actor) { w.Byte(kTrajectory).Byte(actor).Byte(0).Byte(0); };
  InputWriter usual;
  usual.Byte(0);
  for (int actor = 0; actor < kActors; ++actor) join(usual, actor);
  for (int round = 0; round < 4; ++round) {
    for (int actor = 0; actor < kActors; ++actor) send(usual, actor);
    for (int learner = 0; learner < kLearners; ++learner)
      usual.Byte(kTake).Byte(learner).Byte(kPublish).Byte(learner).Byte(round);
  }
  usual.Byte(kAttach).Byte(0);
  send(usual, 0);
  usual.Byte(kPublish)
      .Byte(0)
      .Byte(1)
      .Byte(kDetach)
      .Byte(1)
      .Byte(kTime)
      .Byte(0)
      .Byte(5)
      .Byte(kCut)
      .Byte(1)
      .Byte(kLeave);
  usual.Byte(2).Byte(kTime).Byte(0).Byte(1).Byte(kRaw).Byte(1).Text("{\"hello\": \"1\"}");
  seeds.emplace_back("usual", usual.str());

  InputWriter wrong;
  wrong.Byte(0);
  for (int at = 0; at < 200; at += 7) {
    join(wrong, 0);
    wrong.Byte(kChanged).Byte(0).Byte(0).Byte(0).Byte(0).Number(static_cast<std::uint64_t>(at), 2).Byte(255);
  }
  seeds.emplace_back("wrong", wrong.str());

  InputWriter crowded;  // more than there is room for
  crowded.Byte(0);
  join(crowded, 0);
  for (int i = 0; i < 10; ++i) send(crowded, 0);
  seeds.emplace_back("crowded", crowded.str());

  InputWriter chosen;  // by the learner: three steps to a trajectory, and what goes wrong with that
  chosen.Byte(2);
  for (int actor = 0; actor < kActors; ++actor) join(chosen, actor);
  for (int round = 0; round < 6; ++round) {
    for (int step = 0; step < (round == 4 ? 4 : 3); ++step) {
      for (int actor = 0; actor < kActors; ++actor) chosen.Byte(kAsk).Byte(actor).Byte(0);
    }
    for (int actor = 0; actor < kActors; ++actor) send(chosen, actor);
    chosen.Byte(kTake).Byte(0).Byte(kPublish).Byte(0).Byte(round).Byte(kTake).Byte(1);
    if (round == 2) chosen.Byte(kAttach).Byte(0).Byte(kAsk).Byte(0).Byte(0).Byte(kCut).Byte(0);
    if (round == 4) join(chosen, 1);
  }
  for (int at = 0; at < 24; at += 3)
    chosen.Byte(kAsk).Byte(2).Byte(7).Byte(0).Number(static_cast<std::uint64_t>(at), 2).Byte(255);
  seeds.emplace_back("chosen", chosen.str());

  InputWriter answers;
  const std::string header = InputWriter().Number(2, 8).Number(kParams, 8).str();
  answers.Byte(1)
      .Text(header + std::string(4 * kParams, '\0'))
      .Text(InputWriter().Number(1, 8).Number(0, 8).str());
  answers.Text(header).Text("short");
  seeds.emplace_back("answers", answers.str());
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::fuzz;
  Input in(data, size);
  const int way = in.Choice(3);
  if (way == 1) {
    Answer(in);
    return 0;
  }
  Stage stage(/*central=*/way == 2);
  for (int i = 0; i < kMostActions && !in.empty(); ++i) stage.Act(in);
  return 0;
}
