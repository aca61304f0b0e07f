#include "trireme/experience/remote_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/experience/actor_desk.h"
#include "trireme/experience/choice_message.h"
#include "trireme/experience/trajectory_message.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLook = 250ms;    // signals are looked for so often
constexpr double kPause = 0.25;  // seconds from one attempt to join to the next, whatever becomes of it
constexpr std::string_view kTokenRefused = "refused the token";

}  // namespace

RemoteActorEnd::RemoteActorEnd(LearnerPlace place)
    : place_(std::move(place)), run_(place_.run), heard_s_(MonotonicSeconds()) {}

std::optional<RemoteActorEnd::Welcome> RemoteActorEnd::Join() {
  for (;;) {
    const double pause_s = tried_s_ + kPause - MonotonicSeconds();
    if (state_ == State::kLost && pause_s > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    if (state_ == State::kOver || place_.stop()) return std::nullopt;
    tried_s_ = MonotonicSeconds();
    Welcome welcome;
    if (Greet(welcome)) return welcome;
    if (state_ == State::kOver || place_.stop()) return std::nullopt;
    if (MonotonicSeconds() > heard_s_ + place_.wait_s) {
      Fail(
          "no learner has answered at {} for {:g} seconds{}: start it with `trireme train --listen`, or wait "
          "longer with --wait",
          place_.address, place_.wait_s, said_.empty() ? "" : fmt::format(" ({})", said_));
    }
  }
}

bool RemoteActorEnd::Greet(Welcome& welcome) {
  stream_ = place_.transport->Connect(place_.address, place_.security);
  state_ = State::kOpen;
  welcome_ = false;
  policy_.reset();
  number_ = unanswered_ = params_ = 0;
  Json hello{{"hello", place_.version}};
  if (!run_.empty()) hello["run"] = run_;
  if (!stream_->Send(TextMessage(hello.dump()), Clock::now() + 1s)) {
    Lost();
    return false;
  }
  Incoming* const message = Answer(std::max(place_.wait_s, 1.0));
  if (message == nullptr) return false;
  try {
    const Json said = Json::parse(ReadText(*message));
    welcome.settings = said.at("welcome");
    welcome.index = said.at("index");
    welcome.seed = std::stoull(said.at("seed").get<std::string>());
    run_ = said.value("run", run_);
  } catch (const std::exception&) {
    Fail("what answers at {} is no learner", place_.address);
  }
  return welcome_ = true;
}

void RemoteActorEnd::Ready(const std::string& looks, std::size_t params) {
  params_ = params;
  unanswered_ = 1;
  const std::string text = Json{{"ready", looks}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!stream_->Send(TextMessage(text), Clock::now() + 10s)) Lost();
}

std::shared_ptr<const PublishedPolicy> RemoteActorEnd::Newest() {
  while (state_ == State::kOpen && unanswered_ > 0 && TakeAnswer(/*wait=*/policy_ == nullptr)) {
  }
  return state_ == State::kOpen && !place_.stop() ? policy_ : nullptr;
}

bool RemoteActorEnd::Send(Trajectory& trajectory) {
  // What has come first: who sends to a learner that has gone does not hear its last words.
  while (state_ == State::kOpen && TakeAnswer(/*wait=*/unanswered_ >= kWindow)) {
  }
  if (state_ != State::kOpen || unanswered_ >= kWindow) return false;
  if (!SendMessage(EncodeTrajectory(trajectory, ++number_, &memory_))) return false;
  ++unanswered_;
  // The next trajectory may take long, and nothing leaves meanwhile.
  return Persist([&](Deadline deadline) { return stream_->Flush(deadline); });
}

bool RemoteActorEnd::SendMessage(const Outgoing& message) {
  return Persist([&](Deadline deadline) { return stream_->Send(message, deadline); });
}

// What is on its way may take its time, however slow the network is.
bool RemoteActorEnd::Persist(const std::function<bool(Deadline)>& act) {
  while (!act(Clock::now() + kLook)) {
    if (stream_->closed()) Lost();
    if (state_ != State::kOpen || place_.stop()) return false;
  }
  return true;
}

bool RemoteActorEnd::Choose(const ActionRequest& request, std::uint32_t first_env, const EnvSpec& env) {
  if (state_ != State::kOpen) return false;
  if (!SendMessage(EncodeRequest(request, first_env, RowLayout(env).width()))) return false;
  for (;;) {
    Incoming* const message = Answer(std::numeric_limits<double>::infinity());
    if (message == nullptr) return false;
    const std::uint64_t number = ReadNumber(*message);
    if (number == 0) {
      DecodeChoices(*message, request, first_env, static_cast<std::size_t>(env.action.size()));
      return true;
    }
    TakePolicy(*message, number);
  }
}

bool RemoteActorEnd::TakeAnswer(bool wait) {
  Incoming* const message = Answer(wait ? std::numeric_limits<double>::infinity() : 0);
  if (message == nullptr) return false;
  TakePolicy(*message, ReadNumber(*message));
  return true;
}

void RemoteActorEnd::TakePolicy(Incoming& message, std::uint64_t version) {
  if (unanswered_ == 0) Fail("the learner answers something else than it was asked");
  --unanswered_;
  if (auto policy = DecodePolicy(message, version, params_, policy_.get())) policy_ = std::move(policy);
}

Incoming* RemoteActorEnd::Answer(double seconds) {
  const double begun_s = MonotonicSeconds();
  do {
    if (place_.stop()) return nullptr;
    if (Incoming* const message = stream_->Receive(seconds > 0 ? Clock::now() + kLook : Clock::now())) {
      heard_s_ = MonotonicSeconds();
      return message;
    }
    if (stream_->closed()) {
      Lost();
      return nullptr;
    }
  } while (MonotonicSeconds() < begun_s + seconds);
  return nullptr;
}

void RemoteActorEnd::Lost() {
  const std::string why = stream_->why();
  state_ = why == kRunIsOver ? State::kOver : State::kLost;
  if (state_ == State::kOver) return;
  const bool later = why.starts_with(kComesBack);
  // An actor that was not answered for long has not waited for a learner that is lost.
  if (later || std::exchange(welcome_, false)) heard_s_ = MonotonicSeconds();
  said_ = Printable(later ? why.substr(kComesBack.size()) : why);
  if (why.ends_with(kTokenRefused)) Fail("{}: give --token-file the secret of the learner", said_);
  const bool by_learner = !why.empty() && !later && !why.starts_with(place_.address);
  if (by_learner) Fail("the learner at {}: {}", place_.address, said_);
}

}  // namespace trireme
