#include "trireme/experience/actor_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kLookForRoom = std::chrono::milliseconds(1);
// Seconds for actors to hear why their streams close. One that collects hears nothing meanwhile, and may have to read a long
// policy before that it is over; those who come back need no reason.
constexpr double kFarewell = 2, kFarewellForGood = 20;
constexpr double kIntroduction = 60;  // seconds in which a stream must have said hello
// An actor begins a trajectory with a policy that came with one of the last answers: it waits for all but kWindow of them
// before it sends, and kWindow more may have been sent since.
constexpr std::size_t kGiven = 2 * kWindow + 2;
// What an actor that is chosen for knows as the version of its policy.
constexpr std::uint64_t kChosenHere = 1;

}  // namespace

ActorDesk::ActorDesk(ServerTransport& transport, Terms terms, int learners,
                     std::function<void(const std::string&)> say)
    : transport_(transport),
      terms_(std::move(terms)),
      say_(std::move(say)),
      learners_(static_cast<std::size_t>(learners)) {
  if (terms_.inference != nullptr) choices_.emplace(transport_, terms_.shape, *terms_.inference);
}

void ActorDesk::TakeLeave(bool over) {
  over_ = over;
  leaves_ = true;
}

void ActorDesk::Attach(int learner, TrajectorySink& channel, int rank, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  Learner& to = learners_[static_cast<std::size_t>(learner)];
  // One that begins is not owed what the others have had.
  const std::uint64_t given = std::ranges::max(learners_, {}, &Learner::given).given;
  to = {.channel = &channel, .seed = seed, .rank = static_cast<std::uint64_t>(rank), .given = given};
}

void ActorDesk::Detach(int learner) {
  const std::lock_guard lock(mutex_);
  learners_[static_cast<std::size_t>(learner)].channel = nullptr;
}

void ActorDesk::SetSettings(std::string settings) {
  const std::lock_guard lock(mutex_);
  terms_.settings = std::move(settings);
}

void ActorDesk::Serve() {
  const std::lock_guard lock(mutex_);
  if (!leaves_) ServeLine();
}

void ActorDesk::OnOpen(PeerId peer, const std::string& address) {
  peers_[peer] = {.address = address, .late = leaves_ && !over_, .opened_s = MonotonicSeconds()};
}

std::string ActorDesk::Farewell() const {
  return over_ ? std::string(kRunIsOver) : fmt::format("{}the run was interrupted", kComesBack);
}

void ActorDesk::OnMessage(PeerId id, Incoming& message) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (leaves_) return transport_.Close(id, Farewell());
  Peer& peer = found->second;
  const std::lock_guard lock(mutex_);
  try {
    if (!peer.ready) {
      Greet(id, peer, ReadText(message));
    } else {
      Take(id, peer, message);
    }
    if (peer.owed) peer.owed = !SendPolicy(id, peer);
    ServeLine();
  } catch (const Json::exception&) {
    transport_.Close(id, "this is nothing that an actor says");
  } catch (const NoChoices& error) {
    if (no_choices_since_s_ == 0) no_choices_since_s_ = MonotonicSeconds();
    Refuse(id, peer, error);
  } catch (const Error& error) {
    Refuse(id, peer, error);
  } catch (const std::exception& error) {  // there is no memory for it
    say_(fmt::format("actor {} at {} is closed: {}", peer.index, Printable(peer.address), error.what()));
    transport_.Close(id, fmt::format("{}{}", kComesBack, error.what()));
  }
}

void ActorDesk::Refuse(PeerId id, const Peer& peer, const Error& why) {
  say_(fmt::format("actor {} at {} is refused: {}", peer.index, Printable(peer.address), why.what()));
  transport_.Close(id, why.what());
}

double ActorDesk::SecondsWithoutChoices() const {
  const double since_s = no_choices_since_s_;
  return since_s == 0 ? 0 : MonotonicSeconds() - since_s;
}

void ActorDesk::Greet(PeerId id, Peer& peer, const std::string& text) {
  const Json said = Json::parse(text);
  if (!peer.greeted) {
    const std::string version = said.at("hello");
    if (version != terms_.version)
      Fail("the learner runs trireme {}, and the actor {}: use the same", terms_.version, Printable(version));
    const std::string run = said.value("run", terms_.run);
    if (run != terms_.run)
      Fail("the actor collects for run {}, and here is run {}", Printable(run), terms_.run);
    const auto learner =
        std::ranges::find_if(learners_, [](const Learner& each) { return each.channel != nullptr; });
    if (learner == learners_.end())
      return transport_.Close(id, fmt::format("{}the learner has not begun", kComesBack));
    peer.greeted = true;
    // Random streams are numbered by 31 bits, `envs` to an actor.
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()) /
                      static_cast<std::uint64_t>(terms_.shape.envs);
    const auto own = static_cast<std::uint64_t>(terms_.own_actors),
               all = static_cast<std::uint64_t>(terms_.learners);
    peer.seed = learner->seed;
    peer.index = static_cast<int>((own + joined_++ * all + learner->rank) % most);
    Json welcome{
        {"welcome", terms_.settings}, {"seed", std::to_string(learner->seed)}, {"index", peer.index}};
    if (!terms_.run.empty()) welcome["run"] = terms_.run;
    transport_.Send(id, TextMessage(welcome.dump(-1, ' ', false, Json::error_handler_t::replace)));
    return;
  }
  CheckLooks(said.at("ready"));
  transport_.Allow(id, terms_.shape.most_bytes());
  peer.ready = peer.owed = true;
  ++ready_;
  say_(fmt::format("actor {} at {} joined", peer.index, Printable(peer.address)));
}

void ActorDesk::CheckLooks(const std::string& text) const {
  if (text != terms_.looks) Fail("the actor has {}, and the learner {}", Printable(text), terms_.looks);
}

std::shared_ptr<const PublishedPolicy> ActorDesk::Newest() const {
  std::shared_ptr<const PublishedPolicy> newest;
  for (const Learner& learner : learners_) {
    auto policy = learner.channel == nullptr ? nullptr : learner.channel->newest();
    if (policy != nullptr && (newest == nullptr || policy->version > newest->version))
      newest = std::move(policy);
  }
  return newest;
}

void ActorDesk::Take(PeerId id, Peer& peer, Incoming& message) {
  const std::uint64_t number = ReadNumber(message);
  if (!choices_ || number != 0) return TakeTrajectory(id, peer, number, message);
  if (choices_->begins(id)) {  // it will be chosen by this, or newer ones
    const auto newest = Newest();
    peer.began = newest == nullptr ? sent_->version : newest->version;
  }
  choices_->Ask(id, message);
}

void ActorDesk::TakeTrajectory(PeerId id, Peer& peer, std::uint64_t number, Incoming& message) {
  if (peer.waiting.size() == kWindow) Fail("an actor that does not wait to be answered");
  Trajectory trajectory;
  if (!spare_.empty()) {
    trajectory = std::move(spare_.back());
    spare_.pop_back();
  }
  DecodeTrajectory(message, terms_.shape, trajectory);
  if (number != peer.number + 1)
    Fail("trajectory {} after trajectory {}: each is sent once, in order", number, peer.number);
  if (choices_) {
    choices_->EndTrajectory(id);
    trajectory.policy = peer.began;
  } else {
    const auto given = std::ranges::find(peer.given, trajectory.policy, &Given::version);
    if (given == peer.given.end())
      Fail("a trajectory by version {} of the policy, which it has not been given", trajectory.policy);
    trajectory.policy = given->learners;
  }
  no_choices_since_s_ = 0;
  peer.waiting.push_back(std::move(trajectory));
  peer.number = number;
  line_.push_back(id);
}

void ActorDesk::ServeLine() {
  while (!line_.empty()) {
    const PeerId id = line_.front();
    Peer& peer = peers_.at(id);
    if (!HandOn(peer.waiting.front())) return;
    line_.pop_front();
    Trajectory memory = std::move(peer.waiting.front());
    peer.waiting.pop_front();
    if (memory.samples() > 0 && spare_.size() < peers_.size()) spare_.push_back(std::move(memory));
    SendPolicy(id, peer);
  }
}

bool ActorDesk::HandOn(Trajectory& trajectory) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < learners_.size(); ++i) {
    if (learners_[i].channel != nullptr) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return learners_[i].given; });
  for (const std::size_t to : order) {
    Learner& learner = learners_[to];
    if (learner.channel->newest() == nullptr || !learner.channel->Offer(trajectory)) continue;
    ++learner.given;
    return true;
  }
  return false;
}

bool ActorDesk::SendPolicy(PeerId id, Peer& peer) {
  if (auto newest = Newest(); newest != nullptr && newest != sent_) {  // all actors share one message
    sent_ = std::move(newest);
    ++sent_version_;
    if (!choices_) sent_message_ = EncodePolicy(sent_version_, sent_->params);
  }
  if (sent_ == nullptr) return false;
  if (choices_) {
    transport_.Send(id, EncodePolicy(kChosenHere, {}));
    choices_->Enter(id, peer.seed, static_cast<std::uint32_t>(peer.index * terms_.shape.envs));
    return true;
  }
  if (!peer.given.empty() && peer.given.back().version == sent_version_) {
    transport_.Send(id, EncodePolicy(sent_version_, {}));
    return true;
  }
  transport_.Send(id, sent_message_);
  peer.given.push_back({sent_version_, sent_->version});
  if (peer.given.size() > kGiven) peer.given.pop_front();
  return true;
}

void ActorDesk::OnClose(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  if (found->second.ready && !leaves_)
    say_(fmt::format("actor {} at {} is gone", found->second.index, Printable(found->second.address)));
  if (found->second.ready) --ready_;
  if (choices_) choices_->Leave(peer);
  std::erase(line_, peer);
  peers_.erase(found);
  if (spare_.size() > peers_.size()) spare_.resize(peers_.size());
}

Deadline ActorDesk::OnTime(Deadline now) {
  const double now_s = MonotonicSeconds();
  const std::lock_guard lock(mutex_);
  if (choices_) choices_->Answer();
  bool waiting = choices_ && choices_->waiting();
  for (auto& [id, peer] : peers_) {
    if (leaves_) {
      transport_.Close(id, Farewell());
    } else if (!peer.greeted && now_s > peer.opened_s + kIntroduction) {
      transport_.Close(id, "nothing that an actor says has come");
    } else {
      if (peer.owed) peer.owed = !SendPolicy(id, peer);
      waiting |= peer.owed;
    }
  }
  if (!leaves_) ServeLine();
  waiting |= !line_.empty();
  if (leaves_) {
    if (leaves_by_s_ == 0) leaves_by_s_ = now_s + (over_ ? kFarewellForGood : kFarewell);
    const bool nobody = std::ranges::all_of(peers_, [](const auto& entry) { return entry.second.late; });
    left_ = nobody || now_s > leaves_by_s_;
  }
  return now + (waiting ? kLookForRoom : kLook);
}

}  // namespace trireme
