#include "trireme/experience/replay_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/experience/message_parts.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr double kIntroduction = 60;        // seconds in which a stream must have said who it is
constexpr double kStillThere = 1;           // seconds after which learners whose draws wait are told so
constexpr double kFarewell = 2;             // seconds for peers to hear why their streams close
constexpr std::size_t kMostDraws = 4096;    // that a learner may wait for
constexpr std::size_t kTogether = 1 << 18;  // bytes of draws that go in one message, if there are several
constexpr auto kLook = std::chrono::milliseconds(20);

// Text that was read already, for a handler that expects to read it.
class ReadAlready final : public Incoming {
 public:
  explicit ReadAlready(std::string_view text) : rest_(std::as_bytes(std::span(text.data(), text.size()))) {}
  std::size_t size() const override { return rest_.size(); }
  void Read(std::span<std::byte> to) override {
    std::ranges::copy(rest_.first(to.size()), to.begin());
    rest_ = rest_.subspan(to.size());
  }

 private:
  std::span<const std::byte> rest_;
};

// Actors of a server that was started again must not draw what those before have drawn.
std::uint64_t SeedAfter(std::uint64_t seed, std::uint64_t inserted) {
  if (inserted == 0) return seed;
  const PhiloxBlock bits = Philox(seed, StreamCounter(Purpose::kLateStart, 1, inserted, 0));
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace

// What is remembered, for one run.
class ReplayDesk::Memory final : public TrajectorySink {
 public:
  Memory(ServerTransport& transport, const Options& options, ReplayRun what, ReplayFolder* folder, bool found)
      : run(std::move(what)),
        part(run.rules, run.shape.env, run.shape.envs),
        desk(transport,
             {.version = options.version,
              .run = run.id,
              .settings = run.settings,
              .looks = run.looks,
              .shape = run.shape,
              .learners = static_cast<int>(run.servers)},
             1, options.say),
        folder_(folder),
        say_(options.say),
        record_size_(ReplayBuffer::RecordSize(RowLayout(run.shape.env), run.shape.env.action.size())) {
    ReplayFolder::Counted counted;
    if (folder_ != nullptr && found) {
      const ReplayFolder::Found there = folder_->Restore(part, run.rules.capacity, record_size_);
      options.say(fmt::format(
          "found {} transitions in {}{}", there.there, options.folder.string(),
          there.lost == 0 ? "" : fmt::format("; {} were torn or damaged and are left out", there.lost)));
      if (there.inserted > 0) counted = there.counted;
      ended = folder_->ended();
    } else if (folder_ != nullptr) {
      folder_->Create(run.Encode(), run.rules.capacity, record_size_);
    }
    limiter.emplace(run.rate, counted.inserted, counted.drift);
    limiter->Inserted(part.inserted() - std::min(counted.inserted, part.inserted()));
    Attach();
  }

  // The run goes on, with settings that may differ in what is no part of its identity.
  void GoOn(const ReplayRun& now) {
    run = now;
    limiter.emplace(run.rate, part.inserted(), limiter->drift());
    if (ended && folder_ != nullptr) folder_->SetEnded(false);
    ended = false;
    desk.SetSettings(run.settings);
    Attach();
  }

  // The run is over.
  void End() {
    try {
      if (folder_ != nullptr) folder_->SetEnded(true);
    } catch (const Error& error) {
      say_(fmt::format("another run will be refused, as if this one had not ended: {}", error.what()));
    }
  }

  bool Offer(Trajectory& trajectory) override {
    const auto samples = static_cast<std::uint64_t>(trajectory.samples());
    if (!limiter->MayInsert(samples)) return false;
    part.Insert(trajectory);
    limiter->Inserted(samples);
    if (folder_ != nullptr) folder_->WriteInserted(part);
    KeepCounted();
    episodes += trajectory.episodes;
    lag.Add(policy->version - trajectory.policy);
    return true;
  }
  std::shared_ptr<const PublishedPolicy> newest() const override { return policy; }

  void Correct(std::span<const std::uint64_t> numbers, std::span<const float> errors) {
    for (const std::uint64_t number : numbers) {
      if (number >= part.inserted())
        Fail("an error of transition {}, and there are {}", number, part.inserted());
    }
    part.Update(numbers, errors);
    if (folder_ != nullptr) folder_->WriteErrors(part);
  }

  // As many of so many draws as may be made now and go in a message together.
  std::uint64_t Allowed(std::uint64_t wanted) const {
    std::uint64_t n = 0;
    while (n < wanted && limiter->MayDraw((n + 1) * run.part) &&
           (n == 0 || AnswerBytes(n + 1, run.part, record_size_) <= kTogether))
      ++n;
    return n;
  }

  // For a learner whose draws have to wait.
  Outgoing Wait() const {
    MessageParts message(AnswerBytes(0, run.part, record_size_));
    message.PutOne(ReplayAnswer{.inserted = part.inserted(),
                                .overwritten_errors = part.overwritten_errors(),
                                .actors = static_cast<std::uint64_t>(desk.actors())});
    return message.Done();
  }

  // The next `draws` after as many as a learner has had.
  Outgoing Draw(std::uint64_t draws, double beta, std::uint32_t learner, std::uint64_t drawn) {
    MessageParts message(AnswerBytes(draws, run.part, record_size_), memory_);
    message.PutOne(ReplayAnswer{.draws = draws,
                                .inserted = part.inserted(),
                                .overwritten_errors = part.overwritten_errors(),
                                .actors = static_cast<std::uint64_t>(desk.actors()),
                                .episodes = std::exchange(episodes, {}),
                                .lag = std::exchange(lag, {})});
    for (std::uint64_t draw = 1; draw <= draws; ++draw) {
      const auto numbers = message.Room<std::uint64_t>(run.part);
      const auto weights = message.Room<float>(run.part);
      RandomStream random(run.seed, Purpose::kReplay, learner * run.servers + run.server, drawn + draw);
      part.SampleRecords(random, beta, numbers, weights, message.Room<float>(run.part * record_size_));
      std::ranges::fill(message.Room<float>(DrawPadding(run.part, record_size_)), 0.0f);
    }
    limiter->Drawn(draws * run.part);
    KeepCounted();
    return message.Done();
  }

  ReplayRun run;
  ReplayPart part;
  std::optional<RateLimiter> limiter;
  std::shared_ptr<const PublishedPolicy> policy;
  EpisodeTotals episodes;  // that nobody has been told of, as the next
  Staleness lag;
  bool ended = false;  // the run has, and only what it left is here
  ActorDesk desk;

 private:
  void KeepCounted() {
    if (folder_ != nullptr) folder_->WriteCounted({part.inserted(), limiter->drift()});
  }
  void Attach() { desk.Attach(0, *this, static_cast<int>(run.server), SeedAfter(run.seed, part.inserted())); }

  ReplayFolder* const folder_;
  const std::function<void(const std::string&)> say_;
  const std::size_t record_size_;
  MessageMemory memory_;  // of draws
};

ReplayDesk::ReplayDesk(ServerTransport& transport, Options options)
    : transport_(transport), options_(std::move(options)) {
  if (options_.folder.empty()) return;
  folder_.emplace(options_.folder);
  Find();
}

void ReplayDesk::Find() {
  const std::optional<std::string> description = folder_->Description();
  if (description) {
    memory_ =
        std::make_unique<Memory>(transport_, options_, ReplayRun::Decode(*description), &*folder_, true);
  }
}

ReplayDesk::~ReplayDesk() = default;

void ReplayDesk::OnOpen(PeerId peer, const std::string& address) {
  peers_[peer] = {.address = address, .opened_s = MonotonicSeconds()};
}

void ReplayDesk::OnMessage(PeerId id, Incoming& message) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  try {
    switch (peer.kind) {
      case Kind::kActor:
        memory_->desk.OnMessage(id, message);
        break;
      case Kind::kUnknown:
        Introduce(id, peer, message);
        break;
      case Kind::kLearner:
        peer.joined ? Hear(id, peer, message) : Join(id, peer, message);
        break;
    }
    GoOn();
  } catch (const Json::exception&) {
    transport_.Close(id, "this is nothing that an actor or a learner says");
  } catch (const Error& error) {
    options_.say(fmt::format("{} is refused: {}", Printable(peer.address), error.what()));
    transport_.Close(
        id, peer.kind == Kind::kLearner ? fmt::format("{}{}", kReplayRefuses, error.what()) : error.what());
  } catch (const std::exception& error) {  // there is no memory for it
    options_.say(fmt::format("{} is closed: {}", Printable(peer.address), error.what()));
    transport_.Close(id, fmt::format("{}{}", kComesBack, error.what()));
  }
}

void ReplayDesk::Introduce(PeerId id, Peer& peer, Incoming& message) {
  const std::string text = ReadText(message);
  const Json said = Json::parse(text);
  if (!said.contains("learn")) {
    if (memory_ == nullptr || memory_->policy == nullptr)
      return transport_.Close(id, fmt::format("{}no learner has come yet", kComesBack));
    peer.kind = Kind::kActor;
    memory_->desk.OnOpen(id, peer.address);
    ReadAlready again(text);
    return memory_->desk.OnMessage(id, again);
  }
  const std::string version = said.at("learn");
  peer.kind = Kind::kLearner;
  if (version != options_.version)
    Fail("the replay server runs trireme {}, and the learner {}: use the same", options_.version,
         Printable(version));
  transport_.Allow(id, transport_.limits().message);
}

void ReplayDesk::Join(PeerId id, Peer& peer, Incoming& message) {
  const ReplayRun run = ReplayRun::Decode(ReadText(message));
  const std::size_t record_size =
      ReplayBuffer::RecordSize(RowLayout(run.shape.env), run.shape.env.action.size());
  if (std::max(run.shape.most_bytes(), AnswerBytes(1, run.part, record_size)) > transport_.limits().message)
    Fail("a trajectory or a draw would be longer than a message may be, {} bytes",
         transport_.limits().message);
  const bool alone = std::ranges::none_of(peers_, [](const auto& each) { return each.second.joined; });
  if (memory_ != nullptr && memory_->ended && run.id != memory_->run.id) {
    options_.say(fmt::format("what run {} has left, which has ended, gives way to run {}",
                             Printable(memory_->run.id), Printable(run.id)));
    memory_ = nullptr;
  }
  if (memory_ != nullptr) CheckRun(run);
  if (memory_ == nullptr) {
    Begin(run);
  } else if (alone) {
    memory_->GoOn(run);
  } else if (run.part != memory_->run.part) {
    Fail("the learner draws {} transitions at a time, and those that are here {}", run.part,
         memory_->run.part);
  }
  peer.joined = true;
  peer.learner = run.learner;
  options_.say(fmt::format("learner {} at {} joined", run.learner, Printable(peer.address)));
  transport_.Send(
      id, TextMessage(Json{{"welcome", options_.version}, {"inserted", memory_->part.inserted()}}.dump()));
}

void ReplayDesk::CheckRun(const ReplayRun& run) const {
  const ReplayRun& ours = memory_->run;
  if (run.id != ours.id) {
    Fail(
        "this replay server remembers for another run, {}, which has not ended: {}. The learner's, {}, has: "
        "{}. Go on with that one (trireme train --resume), use another --dir, or start the server anew",
        Printable(ours.id), Printable(ours.Identity()), Printable(run.id), Printable(run.Identity()));
  }
  if (run.servers != ours.servers) {
    Fail(
        "this run has begun with {} replay server{}, and the learner now has {}: how many there are is part "
        "of a run. Go on with as many (with a job script, on as many nodes), or remove their folders, and "
        "with them what is remembered",
        ours.servers, ours.servers == 1 ? "" : "s", run.servers);
  }
  if (run.Identity() != ours.Identity()) {
    Fail(
        "this replay server remembers for this run as it was before: {}. The learner now has: {}. Go on "
        "with what it had, or remove the folder (--dir), and with it what is remembered",
        Printable(ours.Identity()), Printable(run.Identity()));
  }
}

void ReplayDesk::Begin(const ReplayRun& run) {
  try {
    memory_ = std::make_unique<Memory>(transport_, options_, run, folder_ ? &*folder_ : nullptr, false);
  } catch (const std::bad_alloc&) {
    if (folder_) Find();  // what was there is there still
    Fail("there is no memory for {} transitions, {} MiB: use more servers, or a smaller replay",
         run.rules.capacity, ReplayPart::Bytes(run.rules, run.shape.env) >> 20);
  } catch (const Error&) {
    if (folder_) Find();
    throw;
  }
}

void ReplayDesk::Hear(PeerId id, Peer& peer, Incoming& message) {
  if (message.size() < sizeof(ReplayWord)) Fail("a message of {} bytes means nothing", message.size());
  switch (ReadOne<ReplayWord>(message)) {
    case ReplayWord::kPolicy: {
      if (message.size() < sizeof(PolicyHeader)) Fail("a policy that was cut");
      const auto of_learner = ReadOne<std::uint64_t>(message);
      const auto policy = DecodePolicy(message, of_learner, memory_->run.params, nullptr);
      if (!std::ranges::all_of(policy->params, [](float x) { return std::isfinite(x); }))
        Fail("the parameters to collect with are not all finite: the run has diverged");
      // Versions are counted here: those of learners that come back begin anew.
      const std::uint64_t version = memory_->policy == nullptr ? 1 : memory_->policy->version + 1;
      memory_->policy =
          std::make_shared<PublishedPolicy>(PublishedPolicy{.version = version, .params = policy->params});
      break;
    }
    case ReplayWord::kTurn:
      TakeTurn(id, peer, message);
      break;
    case ReplayWord::kOver:
      over_ = true;
      memory_->End();
      break;
    default:
      Fail("a message that means nothing");
  }
}

void ReplayDesk::TakeTurn(PeerId id, Peer& peer, Incoming& message) {
  if (message.size() < sizeof(ReplayTurn)) Fail("a turn that was cut");
  const auto turn = ReadOne<ReplayTurn>(message);
  if (turn.corrected > memory_->run.part * kMostDraws ||
      message.size() != turn.corrected * (sizeof(std::uint64_t) + sizeof(float)))
    Fail("a turn with {} errors in {} bytes", turn.corrected, message.size());
  numbers_.resize(turn.corrected);
  errors_.resize(turn.corrected);
  ReadTo(message, std::span(numbers_));
  ReadTo(message, std::span(errors_));
  if (!numbers_.empty()) memory_->Correct(numbers_, errors_);
  if (turn.wanted == 0) return;
  if (!(turn.beta >= 0 && turn.beta <= 1)) Fail("draws with beta {:g}", turn.beta);
  if (turn.wanted > kMostDraws - peer.owed) Fail("a learner that does not wait to be answered");
  peer.owed += turn.wanted;
  peer.waiting.push_back(turn);
  line_.push_back(id);
}

bool ReplayDesk::AnswerDraws() {
  bool any = false;
  while (!line_.empty() && memory_->part.size() > 0) {
    const PeerId id = line_.front();
    Peer& peer = peers_.at(id);
    ReplayTurn& turn = peer.waiting.front();
    const std::uint64_t draws = memory_->Allowed(turn.wanted);
    if (draws == 0) break;
    try {
      transport_.Send(id, memory_->Draw(draws, turn.beta, peer.learner, peer.drawn));
    } catch (const std::bad_alloc&) {
      transport_.Close(id, fmt::format("{}there is no memory for a draw", kComesBack));
      std::erase(line_, id);
      continue;
    }
    any = true;
    peer.answered_s = MonotonicSeconds();
    peer.drawn += draws;
    peer.owed -= draws;
    turn.wanted -= draws;
    if (turn.wanted > 0) continue;
    peer.waiting.pop_front();
    line_.pop_front();
  }
  return any;
}

void ReplayDesk::GoOn() {
  if (memory_ == nullptr) return;
  while (AnswerDraws()) memory_->desk.Serve();
}

void ReplayDesk::OnClose(PeerId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (found->second.kind == Kind::kActor) memory_->desk.OnClose(id);
  if (found->second.joined && !over_)
    options_.say(
        fmt::format("learner {} at {} is gone", found->second.learner, Printable(found->second.address)));
  std::erase(line_, id);
  peers_.erase(found);
}

void ReplayDesk::EndAll(Deadline now) {
  if (leaves_by_s_ == 0) {
    leaves_by_s_ = MonotonicSeconds() + kFarewell;
    if (memory_ != nullptr) memory_->desk.TakeLeave(over_);
  }
  if (memory_ != nullptr) memory_->desk.OnTime(now);
  for (const auto& [id, peer] : peers_) {
    if (peer.kind == Kind::kActor) continue;
    transport_.Close(id,
                     over_ ? std::string(kRunIsOver) : fmt::format("{}the replay server ends", kComesBack));
  }
  done_ = peers_.empty() || MonotonicSeconds() > leaves_by_s_;
}

Deadline ReplayDesk::OnTime(Deadline now) {
  if (leaves_ || over_) {
    EndAll(now);
    return now + kLook;
  }
  const double now_s = MonotonicSeconds();
  for (auto& [id, peer] : peers_) {
    if (peer.joined && peer.owed > 0 && now_s > peer.answered_s + kStillThere) {
      peer.answered_s = now_s;
      transport_.Send(id, memory_->Wait());
    }
    const bool known = peer.kind == Kind::kActor || peer.joined;
    if (!known && now_s > peer.opened_s + kIntroduction)
      transport_.Close(id, "nothing that an actor or a learner says has come");
  }
  if (memory_ == nullptr) return now + kLook;
  const Deadline next = memory_->desk.OnTime(now);
  GoOn();
  return std::min(next, now + kLook);
}

}  // namespace trireme
