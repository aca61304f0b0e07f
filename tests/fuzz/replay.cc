// A replay server and what learners and actors may send, runs as they may be described, and folders that were cut and changed.
// What is drawn is always what some actor has sent.
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "input.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/experience/message_parts.h"
#include "trireme/experience/replay_desk.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme::fuzz {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kPeers = 4, kMostActions = 200, kSamples = 6;
constexpr std::size_t kParams = 3, kPart = 4, kCapacity = 16;
constexpr float kSent = 0.25f;
enum Action {
  kLearn,
  kRun,
  kPolicy,
  kTurn,
  kHello,
  kReady,
  kTrajectory,
  kOver,
  kRaw,
  kLeave,
  kCut,
  kTime,
  kActions
};

ReplayRun RunOf() {
  EnvSpec env;
  env.name = "Fuzz-v0";
  env.obs.shape = {2};
  env.action = ActionSpace::Discrete(2);
  return {.id = "run",
          .looks = "looks",
          .shape = {env, 3, 2},
          .rules = {.capacity = kCapacity, .n_step = 2, .gamma = 0.5, .alpha = 0.6, .epsilon = 0.01},
          .rate = {.draws_per_insert = 1, .least = 6, .slack = 1e6},
          .part = kPart,
          .settings = "s",
          .params = kParams,
          .seed = 5};
}

Trajectory MakeTrajectory() {
  Trajectory t(RowLayout(2), 1, 3, 2);
  std::ranges::fill(t.obs, kSent);
  t.truncated[4] = 1;
  t.truncated_samples = {4};
  t.truncated_obs = {kSent, kSent};
  return t;
}

Outgoing Changed(Input& in, const Outgoing& plain, int changes) {
  auto message = std::make_shared<AlignedBuffer<std::byte>>(plain->size());
  std::ranges::copy(*plain, message->begin());
  for (; changes > 0 && message->size() > 0; --changes) {
    const std::size_t at = in.Number(2) % message->size();
    (*message)[at] = static_cast<std::byte>(in.Byte());
  }
  return message;
}
Outgoing PolicyMessage() {
  const std::vector<float> params(kParams);
  MessageParts writer(sizeof(ReplayWord) + sizeof(PolicyHeader) + kParams * sizeof(float));
  writer.PutOne(ReplayWord::kPolicy);
  writer.PutOne(PolicyHeader{.version = 1, .params = kParams});
  writer.Put(std::span(params));
  return writer.Done();
}
Outgoing OverMessage() {
  MessageParts writer(sizeof(ReplayWord));
  writer.PutOne(ReplayWord::kOver);
  return writer.Done();
}

constexpr std::size_t kMostAsked = 255;  // draws of a turn

// What comes out is whole, and as it was sent where nothing else may have been.
std::uint64_t CheckDraw(Incoming& message, bool untouched) {
  ReplayDraw draw(kPart, RowLayout(2), 1);
  AlignedBuffer<float> records;
  const ReplayAnswer answer =
      DecodeAnswer(message, kPart, ReplayBuffer::RecordSize(RowLayout(2), 1), kMostAsked);
  for (std::uint64_t n = 0; n < answer.draws; ++n) {
    DecodeDraw(message, RowLayout(2), 1, records, draw);
    for (std::size_t i = 0; i < kPart; ++i) {
      TRIREME_CHECK(draw.numbers[i] < answer.inserted && answer.inserted - draw.numbers[i] <= kCapacity);
      TRIREME_CHECK(draw.weights[i] > 0 && draw.weights[i] <= 1);
      TRIREME_CHECK(std::isfinite(draw.transitions.obs[2 * i]) &&
                    std::isfinite(draw.transitions.next_obs[2 * i]));
      TRIREME_CHECK(!untouched ||
                    (draw.transitions.obs[2 * i] == kSent && draw.transitions.next_obs[2 * i] == kSent));
    }
  }
  return answer.inserted;
}

struct Peer {
  PeerId number = 0;
  std::unique_ptr<Stream> stream;
  std::uint64_t sent = 0, version = 0;
};

class Stage {
 public:
  explicit Stage(const fs::path& folder = {})
      : listener_(transport_.Listen("a", {}, {.message = 1 << 16})),
        desk_(*listener_, {.version = "1", .folder = folder}) {}

  // A learner that means well, and with it a memory of a size that can be borne.
  void Begin() {
    Send(peers_[0], TextMessage(Json{{"learn", "1"}}.dump()));
    Send(peers_[0], TextMessage(RunOf().Encode()));
    Send(peers_[0], PolicyMessage());
    Pump();
  }

  void Act(Input& in) {
    const int action = in.Choice(kActions);
    Peer& peer = peers_[in.Choice(kPeers)];
    const int changes = in.Choice(4) == 3 ? 1 + in.Choice(4) : 0;
    switch (action) {
      case kLearn:
        Send(peer, TextMessage(Json{{"learn", in.Choice(8) == 7 ? "2" : "1"}}.dump()));
        break;
      case kRun:
        Send(peer, Changed(in, TextMessage(RunOf().Encode()), changes));
        break;
      case kPolicy:
        Send(peer, Changed(in, PolicyMessage(), changes));
        break;
      case kTurn:
        Send(peer, Changed(in, Turn(in), changes));
        break;
      case kHello:
        Send(peer, TextMessage(Json{{"hello", in.Choice(8) == 7 ? "2" : "1"}}.dump()));
        break;
      case kReady:
        Send(peer, TextMessage(Json{{"ready", in.Choice(8) == 7 ? "other" : "looks"}}.dump()));
        break;
      case kTrajectory: {
        Trajectory trajectory = MakeTrajectory();
        trajectory.policy = in.Choice(8) == 7 ? in.Byte() : peer.version;
        untouched_ &= changes == 0;
        ++trajectories_;
        Send(peer,
             Changed(in, EncodeTrajectory(trajectory, in.Choice(8) == 7 ? in.Byte() : ++peer.sent), changes));
        break;
      }
      case kOver:
        Send(peer, OverMessage());
        break;
      case kRaw:
        Send(peer, TextMessage(in.Text()));
        break;
      case kLeave:
        peer.stream.reset();
        break;
      case kCut:
        transport_.Cut(peer.number);
        break;
      case kTime:
        now_ += std::chrono::milliseconds(100 * in.Byte());
        break;
    }
    Pump();
  }

  // Draws once more from what is there; false when nothing comes.
  bool Draws() {
    Peer learner;
    Send(learner, TextMessage(Json{{"learn", "1"}}.dump()));
    Send(learner, TextMessage(RunOf().Encode()));
    Send(learner, EncodeTurn({.wanted = 1, .beta = 0.5}, {}, {}));
    transport_.Pump(*listener_, desk_, now_);
    const std::uint64_t before = drawn_;
    ReadAnswers(learner);
    return drawn_ > before;
  }

 private:
  static Outgoing Turn(Input& in) {
    std::vector<std::uint64_t> numbers(in.Choice(kPart + 1));
    std::vector<float> errors(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = in.Choice(32);
      errors[i] = static_cast<float>(in.Byte());
    }
    const std::uint64_t wanted = in.Choice(8) == 7 ? in.Byte() : 1;
    return EncodeTurn({.wanted = wanted, .beta = 0.5, .corrected = numbers.size()}, numbers, errors);
  }
  void Send(Peer& peer, const Outgoing& message) {
    if (!peer.stream || peer.stream->closed()) {
      peer = {};
      peer.number = ++last_;
      peer.stream = transport_.Connect("a", {});
    }
    peer.stream->Send(message, Deadline::min());
  }
  void Pump() {
    now_ += std::chrono::milliseconds(1);
    transport_.Pump(*listener_, desk_, now_);
    for (Peer& peer : peers_) ReadAnswers(peer);
  }
  // They differ in length: texts, policies and draws.
  void ReadAnswers(Peer& peer) {
    if (!peer.stream) return;
    while (Incoming* const message = peer.stream->Receive(Deadline::min())) {
      const std::size_t record = ReplayBuffer::RecordSize(RowLayout(2), 1);
      if (message->size() >= AnswerBytes(1, kPart, record)) {
        const std::uint64_t inserted = CheckDraw(*message, untouched_);
        TRIREME_CHECK(trajectories_ == 0 || inserted <= trajectories_ * kSamples);
        ++drawn_;
      } else if (message->size() == sizeof(PolicyHeader) ||
                 message->size() == sizeof(PolicyHeader) + kParams * sizeof(float)) {
        peer.version = ReadOne<PolicyHeader>(*message).version;
      }
    }
  }

  MemoryTransport transport_;
  PeerId last_ = 0;
  Deadline now_ = Clock::now();
  std::unique_ptr<ServerTransport> listener_;
  ReplayDesk desk_;
  std::array<Peer, kPeers> peers_;
  std::uint64_t trajectories_ = 0, drawn_ = 0;
  bool untouched_ = true;  // all trajectories, so far
};

// ---- Runs ----

void Describe(Input& in) {
  std::string text = RunOf().Encode();
  for (int edits = in.Choice(6); edits > 0; --edits) {
    const std::size_t at = in.Number(2) % text.size();
    if (in.Choice(2) == 0) {
      text[at] = static_cast<char>(in.Byte());
    } else {
      text.replace(at, in.Choice(16), in.Text());
    }
    if (text.empty()) return;
  }
  const ReplayRun run = ReplayRun::Decode(text);
  TRIREME_CHECK(run.rules.capacity > 0 && run.part > 0 && run.server < run.servers);
  TRIREME_CHECK(ReplayRun::Decode(run.Encode()).Identity() == run.Identity());
}

// ---- Folders ----

const char* const kFiles[] = {"description", "transitions"};
using Moment = std::array<std::string, std::size(kFiles)>;

const std::vector<Moment>& Moments() {
  static const std::vector<Moment> moments = [] {
    std::vector<Moment> life;
    const ScratchFolder folder;
    Stage stage(folder.path());
    const auto look = [&] {
      Moment& moment = life.emplace_back();
      for (std::size_t i = 0; i < moment.size(); ++i) moment[i] = ReadFile(folder.path() / kFiles[i]);
    };
    stage.Begin();
    look();
    InputWriter usual;
    usual.Byte(kHello).Byte(1).Byte(0).Byte(0).Byte(kReady).Byte(1).Byte(0).Byte(0);
    for (int i = 0; i < 5; ++i) usual.Byte(kTrajectory).Byte(1).Byte(0).Byte(0).Byte(0);
    Input in(reinterpret_cast<const std::uint8_t*>(usual.str().data()), usual.str().size());
    for (int i = 0; !in.empty(); ++i) {
      stage.Act(in);
      if (i > 1) look();
    }
    return life;
  }();
  return moments;
}

void Recover(Input& in) {
  const ScratchFolder folder;
  const std::size_t moment = in.Byte() % Moments().size();
  for (std::size_t i = 0; i < std::size(kFiles); ++i) {
    std::string bytes = Moments()[in.Choice(4) == 3 ? in.Byte() % Moments().size() : moment][i];
    for (int edits = in.Choice(4); edits > 0; --edits) {
      if (bytes.empty()) break;
      // Most of the header is empty: 4 kB of which little is read.
      const std::size_t begin = i == 1 && in.Choice(4) != 0 && bytes.size() > 4096 ? 4096 : 0;
      const std::size_t at = begin + in.Number(2) % (bytes.size() - begin);
      switch (in.Choice(4)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes[at] = static_cast<char>(in.Byte());
          break;
        case 2:
          bytes.insert(at, in.Text());
          break;
        case 3: {
          const std::string other = in.Text();
          bytes.replace(at, other.size(), other);
          break;
        }
      }
    }
    if (in.Choice(8) != 7) WritePlainly(folder.path() / kFiles[i], bytes);
  }
  Stage stage(folder.path());
  stage.Draws();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const auto plain = [](InputWriter& w, Action action, int peer) -> InputWriter& {
    return w.Byte(action).Byte(peer).Byte(0);
  };
  const auto learner = [&](InputWriter& w, int peer) {
    plain(w, kLearn, peer).Byte(0);
    plain(w, kRun, peer);
    plain(w, kPolicy, peer);
  };
  const auto actor = [&](InputWriter& w, int peer) {
    plain(w, kHello, peer).Byte(0);
    plain(w, kReady, peer).Byte(0);
  };
  const auto draw = [&](InputWriter& w, int peer, int errors) {
    plain(w, kTurn, peer).Byte(errors);
    for (int i = 0; i < errors; ++i) w.Byte(i).Byte(40 * i);
    w.Byte(0);
  };
  InputWriter usual;
  usual.Byte(0);
  learner(usual, 1);
  for (const int peer : {2, 3}) actor(usual, peer);
  for (int round = 0; round < 4; ++round) {
    for (const int peer : {2, 3}) plain(usual, kTrajectory, peer).Byte(0).Byte(0);
    for (const int peer : {0, 1}) draw(usual, peer, round);
    plain(usual, kPolicy, round % 2);
  }
  InputWriter comes_back = usual;
  for (const int peer : {0, 1, 2}) plain(comes_back, peer == 1 ? kCut : kLeave, peer);
  learner(comes_back, 1);
  draw(comes_back, 1, 0);
  plain(comes_back, kTime, 0).Byte(9);
  InputWriter over = usual;
  plain(over, kOver, 1);
  plain(over, kTime, 0).Byte(30);
  seeds.emplace_back("usual", usual.str());
  seeds.emplace_back("comes-back", comes_back.str());
  seeds.emplace_back("over", over.str());

  InputWriter wrong;
  wrong.Byte(0);
  for (int at = 0; at < 120; at += 5) {
    actor(wrong, 2);
    wrong.Byte(kTrajectory)
        .Byte(2)
        .Byte(3)
        .Byte(0)
        .Byte(0)
        .Byte(0)
        .Number(static_cast<std::uint64_t>(at), 2)
        .Byte(255);
    learner(wrong, 1);
    wrong.Byte(kTurn)
        .Byte(1)
        .Byte(3)
        .Byte(0)
        .Byte(1)
        .Byte(0)
        .Byte(7)
        .Byte(0)
        .Number(static_cast<std::uint64_t>(at), 2)
        .Byte(255);
  }
  seeds.emplace_back("wrong", wrong.str());

  for (int part = 0; part < 8; ++part) {
    InputWriter described;
    described.Byte(1).Byte(part % 3);
    for (int i = 0; i < part % 3; ++i)
      described.Number(static_cast<std::uint64_t>(97 * part + 31 * i), 2).Byte(0).Byte(255);
    seeds.emplace_back("run-" + std::to_string(part), described.str());
  }
  for (int way = 0; way < 6; ++way) {
    InputWriter folder;
    folder.Byte(2).Byte(4).Byte(0).Byte(way == 5 ? 1 : 0);
    if (way == 5) folder.Number(50, 2).Byte(1).Byte(7);
    folder.Byte(0).Byte(0).Byte(way < 4 ? 1 : 0);
    if (way < 4) folder.Byte(1).Number(static_cast<std::uint64_t>(70 * way + 20), 2).Byte(way);
    if (way == 1) folder.Byte(99);
    if (way == 2 || way == 3) folder.Text("other bytes");
    folder.Byte(0);
    seeds.emplace_back("folder-" + std::to_string(way), folder.str());
  }
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::fuzz;
  Input in(data, size);
  try {
    switch (in.Choice(3)) {
      case 0: {
        Stage stage;
        stage.Begin();
        for (int i = 0; i < kMostActions && !in.empty(); ++i) stage.Act(in);
        break;
      }
      case 1:
        Describe(in);
        break;
      case 2:
        Recover(in);
        break;
    }
  } catch (const trireme::Error&) {
  }
  return 0;
}
