#include "trireme/server/client/server_link.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "trireme/base/text.h"

namespace trireme {
namespace {

// Sequences of requests and of hellos are told apart.
constexpr std::uint64_t kHelloSequence = std::uint64_t{1} << 63;
constexpr double kShortestPause = 0.02, kLongestPause = 1;
constexpr std::chrono::seconds kOpening{3};  // for one attempt to connect
// A wait is told of when it has lasted so long, and then now and then. Whoever was told to stop goes on
// waiting for a while, and longer where waits have been longer: the end of an iteration is a better place.
constexpr std::chrono::seconds kFirstWord{3}, kNextWord{30}, kGrace{5};
constexpr std::string_view kTokenRefused = "refused the token";  // why a stream ends that has another token

// Whoever answers may be no server of ours: what workers count with is bounded.
bool Believable(const Header& answer) {
  const bool rank = answer.kind != MessageKind::kWelcome || answer.worker <= kHighestRank;
  return answer.clock <= kMostUpdates && rank && answer.steps >= 0 &&
         static_cast<std::uint64_t>(answer.steps) <= kMostUpdates && answer.number <= kMostUpdates &&
         answer.version <= kMostUpdates;
}

}  // namespace

ServerLink::ServerLink(ServerPlace place, std::function<Outgoing()> state)
    : place_(std::move(place)), state_(std::move(state)), heard_(Clock::now()) {
  link_.SetName(place_.address);
}

Header ServerLink::MakeRequest(MessageKind kind) {
  return {.kind = kind, .worker = greeting_.worker, .sequence = ++sequence_, .held = held_};
}

Welcome ServerLink::Join(const Greeting& greeting, std::span<float> params) {
  const std::uint64_t clock = greeting_.clock;
  greeting_ = greeting;
  greeting_.clock = clock;
  heard_ = Clock::now();
  Forget();
  held_ = 0;
  stream_ = place_.transport->Connect(place_.address, place_.security);  // a stream takes one hello
  return Greet(params);
}

// A server that was started again waits a lease for those who were there before it.
double ServerLink::LongestPause() const {
  return std::clamp(greeting_.terms.lease_s / 4, kShortestPause, kLongestPause);
}

// Hello until welcome, over as many streams as it takes.
Welcome ServerLink::Greet(std::span<float> params) {
  for (;;) {
    const std::uint64_t sequence = kHelloSequence | ++hellos_;
    Header hello{.kind = MessageKind::kHello, .worker = greeting_.worker, .sequence = sequence};
    bool sent = stream_->Send(MakeMessage(hello, {}, {}, greeting_.Encode()), Clock::now() + kOpening);
    while (sent) {
      Header header;
      Incoming* const message = Receive(header, Clock::now() + kLook);
      Watch("to take it in");
      if (message == nullptr) {
        if (stream_->closed()) break;
        continue;
      }
      if (header.kind == MessageKind::kNeedState) {
        sent = Send(state_());
      } else if (header.kind == MessageKind::kWelcome && header.sequence == sequence) {
        if (header.floats != params.size()) {
          Fail("server {} has {} parameters where {} are due", place_.address, header.floats, params.size());
        }
        ReadFloats(*message, params);
        greeting_.rank = static_cast<std::int64_t>(header.worker);
        pause_s_ = 0;
        tell_next_.reset();
        return {header, ReadText(*message, header)};
      }
    }
    HearWhy();
    Watch("to take it in");
    std::this_thread::sleep_for(Seconds(pause_s_));
    pause_s_ = std::clamp(2 * pause_s_, kShortestPause, LongestPause());
    stream_ = place_.transport->Connect(place_.address, place_.security);
  }
}

void ServerLink::Ask(Header header, Outgoing request, Outgoing instead) {
  TRIREME_CHECK(request_ == nullptr);
  TRIREME_CHECK(header.sequence == sequence_);
  if (lost_) throw ServerLost(fmt::format("server {} is lost", place_.address));
  Count(request->size());
  awaited_ = header.sequence;
  request_ = std::move(request);
  instead_ = std::move(instead);
  waited_ = {};
  heard_ = Clock::now();
  Send(request_);  // a closed stream is noticed when the answer is waited for
}

void ServerLink::HearWhy() {
  const std::string why = stream_->why();
  if (why.empty()) return;
  const bool later = why.starts_with(kLater);
  said_ = Printable(later ? why.substr(kLater.size()) : why);
  const bool by_server = !why.starts_with(place_.address) && !later;
  if (by_server) Fail("server {}: {}", place_.address, said_);
  if (why.ends_with(kTokenRefused)) Fail("{}: give --token-file the secret of the server", said_);
}

void ServerLink::Reconnect() {
  HearWhy();
  stream_ = place_.transport->Connect(place_.address, place_.security);
  std::vector<float> params(RangeOfServer(greeting_.terms, greeting_.server).size);
  const Deadline heard = heard_;
  Greet(params);
  heard_ = heard;  // only an answer counts
  if (instead_ != nullptr) {
    request_ = instead_;
    Header header;
    std::memcpy(&header, request_->data(), sizeof header);
    awaited_ = header.sequence;
  }
  if (request_ != nullptr) Send(request_);
}

void ServerLink::Tell(const Outgoing& message) {
  if (stream_ && !lost_) stream_->Send(message, Clock::now() + Seconds(0.5));
}

Incoming& ServerLink::Answer(Header& answer) {
  for (;;) {
    if (Incoming* const message = Await(answer, Clock::now() + kLook)) return *message;
  }
}

Incoming* ServerLink::Await(Header& answer, Deadline until) {
  TRIREME_CHECK(request_ != nullptr);
  const Deadline begun = Clock::now();
  for (;;) {
    Incoming* const message = Receive(answer, until);
    if (message != nullptr && answer.sequence == awaited_ && answer.kind != MessageKind::kWaiting) {
      waited_ += Clock::now() - begun;
      Answered(answer);
      return message;
    }
    Watch("to answer");
    if (message != nullptr) continue;
    if (stream_->closed()) Reconnect();
    if (Clock::now() < until) continue;
    waited_ += Clock::now() - begun;
    return nullptr;
  }
}

void ServerLink::LookAfter() {
  Header header;
  while (Receive(header, Clock::now()) != nullptr) {
  }
  if (!stream_->closed()) return;
  heard_ = Clock::now();
  Reconnect();
}

void ServerLink::Measure() {
  ProcessLink before = link_;
  MeasureLink(before, [&](std::size_t size) {
    const Header header = MakeRequest(MessageKind::kEcho);
    Ask(header, MakeMessage(header, {}, {}, std::string(size, ' ')));
    Header answer;
    if (Answer(answer).size() != size) Fail("server {} does not send back what it was sent", place_.address);
  });
  link_ = before;
}

void ServerLink::Count(std::size_t bytes) {
  link_.messages += 1;
  link_.bytes += bytes;
}

void ServerLink::Answered(const Header& answer) {
  Count(MessageWriter::Size(answer));
  link_.waited_s += std::chrono::duration<double>(waited_).count();
  longest_wait_ = std::max(longest_wait_, waited_);
  tell_next_.reset();
  if (answer.kind == MessageKind::kParams) greeting_.clock = answer.clock;
  request_ = nullptr;
}

bool ServerLink::Send(const Outgoing& message) {
  return stream_->Send(message, heard_ + Seconds(place_.patience_s));
}

Incoming* ServerLink::Receive(Header& header, Deadline until) {
  Incoming* const message = stream_->Receive(until);
  if (message == nullptr) return nullptr;
  header = ReadHeader(*message);
  if (!Believable(header)) Fail("server {} sends numbers that cannot be true", place_.address);
  if (header.encoded > 0 && header.kind != MessageKind::kParams)
    Fail("server {} sends compressed bytes where none are due", place_.address);
  if (header.kind == MessageKind::kWaiting) said_ = Printable(ReadText(*message, header));
  heard_ = Clock::now();
  return message;
}

void ServerLink::Lose(const char* what, const std::string& why) {
  Forget();
  const std::string who = greeting_.rank < 0 ? "a new worker" : fmt::format("worker {}", greeting_.rank);
  throw ServerLost(fmt::format("{} {} server {} {}: {}", who, why, place_.address, what,
                               said_.empty() ? "it says nothing" : said_));
}

void ServerLink::Watch(const char* what) {
  const Deadline now = Clock::now();
  if (now - heard_ >= Seconds(place_.patience_s)) {
    lost_ = true;
    Lose(what, fmt::format("waited {} s for", place_.patience_s));
  }
  if (place_.stopped && place_.stopped()) {
    if (!told_to_stop_) told_to_stop_ = now;
    const bool newcomer = !greeting_.continues && greeting_.rank < 0;  // has nothing to end well
    if (newcomer || now - *told_to_stop_ >= kGrace + 2 * longest_wait_)
      Lose(what, "was stopped while waiting for");
  }
  if (place_.say == nullptr || (tell_next_ && now < *tell_next_)) return;
  if (tell_next_) {
    place_.say(fmt::format("waiting for server {} {}: {}", place_.address, what,
                           said_.empty() ? "it says nothing" : said_));
  }
  tell_next_ = now + (tell_next_ ? kNextWord : kFirstWord);
}

}  // namespace trireme
