#include "trireme/experience/remote_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/experience/actor_desk.h"
#include "trireme/experience/message_parts.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr std::string_view kTokenRefused = "refused the token";
constexpr auto kLook = 100ms;     // who waits looks for a reason to give up so often
constexpr auto kMoment = 2ms;     // that one server is waited for, before all are looked at again
constexpr auto kPushAgain = 1ms;  // who waits sends the next message that has not left so soon
constexpr double kAgain = 0.25;   // seconds between attempts to connect
constexpr double kTell = 5;       // seconds after which people are told
constexpr auto kGreeting = 5s;    // for a server to answer the first time
constexpr auto kFarewell = 5s;    // for servers to hear that the run is over,
constexpr auto kSilence = 2s;     // and for those that say nothing meanwhile
constexpr double kAway = 3;       // seconds without a word, of which there should be one every second
constexpr int kListened = 100;    // times, before one is called away: what has come may not be seen at once
constexpr double kSilentFor = 1;  // seconds without a word, while another one speaks, after which draws of
                                  // the others take the place of its own

Deadline After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Outgoing Word(ReplayWord word) {
  MessageParts writer(sizeof word);
  writer.PutOne(word);
  return writer.Done();
}

Outgoing PolicyMessage(std::span<const float> params) {
  const PolicyHeader header{.version = 1, .params = params.size()};  // servers count for themselves
  MessageParts writer(sizeof(ReplayWord) + sizeof header + params.size_bytes());
  writer.PutOne(ReplayWord::kPolicy);
  writer.PutOne(header);
  writer.Put(params);
  return writer.Done();
}

// What came of introducing oneself.
struct Opened {
  std::unique_ptr<Stream> stream = nullptr;  // null: nobody has welcomed us
  std::string why = {};
  bool closed = false;
};

Opened Open(Transport& transport, const std::string& address, const Security& security, const Outgoing& hello,
            const Outgoing& run, const std::atomic<bool>& ending) {
  std::unique_ptr<Stream> stream = transport.Connect(address, security);
  const bool sent = stream->Send(hello, Clock::now() + 1s) && stream->Send(run, Clock::now() + 1s);
  const Deadline end = Clock::now() + kGreeting;
  while (sent && !ending && !stream->closed() && Clock::now() < end) {
    Incoming* const answer = stream->Receive(Clock::now() + kLook);
    if (answer == nullptr) continue;
    const Json said = Json::parse(ReadText(*answer), nullptr, /*allow_exceptions=*/false);
    if (!said.is_object() || !said.contains("welcome"))
      Fail("what answers at {} is no replay server", address);
    return {.stream = std::move(stream)};
  }
  return {.why = stream->why(), .closed = stream->closed()};
}

}  // namespace

struct RemoteReplay::Server {
  std::uint32_t index;
  std::string address;
  std::unique_ptr<Stream> stream = nullptr;  // null: not connected
  std::future<Opened> opening = {};          // a stream that is to be: nobody waits for a server that is gone
  double tried_s = -1e9;                     // when it was connected last
  double heard_s = 0;                        // when it said something last
  double lost_s = 0;                         // when its stream was lost
  bool told = false;                         // people, that it is away
  int silences = 0;                          // times that it was listened to in vain, since it was heard
  std::uint64_t actors = 0;                  // that it had then
  int owed = 0;                              // draws that were asked for and not used
  Incoming* arrived = nullptr;               // draws that have come,
  std::uint64_t unread = 0;                  // so many
  std::vector<std::uint64_t> numbers = {};   // of those that were used, with their errors
  std::vector<float> errors = {};
  std::deque<Outgoing> to_send = {};
  Outgoing policy = nullptr;  // the newest, where it has not left yet
  std::string said = {};      // why it let nobody in the last time

  // Since when nothing of it has come, as far as it was listened to.
  double AwaySince() const { return stream == nullptr ? lost_s : heard_s; }
};

RemoteReplay::RemoteReplay(Options options, ReplayRun run)
    : options_(std::move(options)),
      run_(std::move(run)),
      layout_(run_.shape.env),
      draw_(run_.part, layout_, run_.shape.env.action.size()) {
  run_.servers = static_cast<std::uint32_t>(options_.servers.size());
  for (std::uint32_t i = 0; i < run_.servers; ++i)
    servers_.push_back(std::make_unique<Server>(Server{.index = i, .address = options_.servers[i]}));
  // All must be there to begin with: a wrong address would not be noticed later.
  const double begun_s = MonotonicSeconds();
  for (const auto& server : servers_) {
    while (!Connect(*server, Clock::now() + kLook)) {
      const double waited_s = MonotonicSeconds() - begun_s;
      if (waited_s > options_.wait_s) {
        Fail(
            "no replay server has answered at {} for {:g} seconds{}: start it with `trireme replay --listen`",
            server->address, options_.wait_s, server->said.empty() ? "" : fmt::format(" ({})", server->said));
      }
      options_.give_up(waited_s, /*collected=*/false);
    }
  }
}

RemoteReplay::~RemoteReplay() { ending_ = true; }

// Throws Error when the server does not want us.
bool RemoteReplay::Connect(Server& server, Deadline deadline) {
  if (server.stream != nullptr) return true;
  if (!server.opening.valid()) {
    const double early_s = server.tried_s + kAgain - MonotonicSeconds();
    if (early_s > 0) {
      std::this_thread::sleep_until(std::min<Deadline>(deadline, After(early_s)));
      return false;
    }
    server.tried_s = MonotonicSeconds();
    Transport& transport = options_.transport != nullptr ? *options_.transport : TransportFor(server.address);
    run_.server = server.index;
    server.opening =
        std::async(std::launch::async,
                   [this, &transport, &server, hello = TextMessage(Json{{"learn", options_.version}}.dump()),
                    run = TextMessage(run_.Encode())] {
                     return Open(transport, server.address, options_.security, hello, run, ending_);
                   });
  }
  if (server.opening.wait_until(deadline) != std::future_status::ready) return false;
  Opened opened = server.opening.get();
  if (opened.stream == nullptr) {
    WentAway(server, opened.why, opened.closed);
    return false;
  }
  server.stream = std::move(opened.stream);
  server.heard_s = MonotonicSeconds();
  server.silences = 0;
  server.actors = 0;
  server.told = false;
  server.policy = policy_;
  server.to_send.clear();
  if (over_) server.to_send.push_back(Word(ReplayWord::kOver));
  return true;
}

// Throws Error when it is no use to come back.
void RemoteReplay::Lose(Server& server) {
  const std::string why = server.stream->why();
  const bool closed = server.stream->closed();
  server.stream.reset();
  server.lost_s = MonotonicSeconds();
  server.owed = 0;
  server.arrived = nullptr;
  server.unread = 0;
  server.numbers.clear();  // another server may be there next
  server.errors.clear();
  WentAway(server, why, closed);
}

// Throws Error when it is no use to come back.
void RemoteReplay::WentAway(Server& server, const std::string& why, bool closed) {
  if (why.ends_with(kTokenRefused))
    Fail("{}: give --token-file the secret of the replay servers", Printable(why));
  if (!closed || why.empty() || why.starts_with(server.address)) return;
  const bool later = why.starts_with(kComesBack);
  server.said = Printable(later ? why.substr(kComesBack.size()) : why);
  if (later) return;
  if (why == kRunIsOver) Fail("the replay server at {}: {}", server.address, why);
  if (why.starts_with(kReplayRefuses))
    Fail("the replay server at {}: {}", server.address, Printable(why.substr(kReplayRefuses.size())));
  Fail("what answers at {} is no replay server; it says: {}", server.address, server.said);
}

void RemoteReplay::Send(Server& server) {
  if (server.policy != nullptr && server.stream->Send(server.policy, Clock::now())) server.policy = nullptr;
  while (!server.to_send.empty() && server.stream->Send(server.to_send.front(), Clock::now()))
    server.to_send.pop_front();
}

void RemoteReplay::Push(Server& server) {
  if (server.stream == nullptr) return;
  Send(server);
  if (server.stream->closed()) Lose(server);
}

bool RemoteReplay::Counts(const Server& server) const {
  double heard_s = 0;  // the last that anybody was
  for (const auto& each : servers_) heard_s = std::max(heard_s, each->heard_s);
  return server.stream != nullptr && server.heard_s + kSilentFor >= heard_s;
}

int RemoteReplay::Part() const {
  const auto counts = std::ranges::count_if(servers_, [&](const auto& server) { return Counts(*server); });
  const int parts = std::max(1, static_cast<int>(counts));
  return (options_.ahead + parts - 1) / parts;
}

void RemoteReplay::Ask(Server& server) {
  const int part = Part();
  if (server.owed > part / 2) return;
  if (server.owed > 0 && !Counts(server)) return;  // it has enough to answer, if it speaks again
  const int wanted = part - server.owed;
  server.owed = part;
  server.to_send.push_back(EncodeTurn(
      {.wanted = static_cast<std::uint64_t>(wanted), .beta = beta_, .corrected = server.numbers.size()},
      server.numbers, server.errors));
  server.numbers.clear();
  server.errors.clear();
}

// Learners in step have the same parameters: the first publishes them.
void RemoteReplay::Begin(std::span<const float> params) {
  if (run_.learner != 0) return;
  policy_ = PolicyMessage(params);
  for (const auto& server : servers_) {
    server->policy = policy_;
    Push(*server);
  }
}

bool RemoteReplay::Take(Server& server, Deadline deadline) {
  if (!Connect(server, deadline) || (server.unread == 0 && !Receive(server, deadline))) {
    TellAway(server);
    return false;
  }
  DecodeDraw(*server.arrived, layout_, run_.shape.env.action.size(), records_, draw_);
  --server.unread;
  --server.owed;
  drawn_from_ = &server;
  return true;
}

bool RemoteReplay::Receive(Server& server, Deadline deadline) {
  do {
    Ask(server);
    Push(server);
    if (server.stream == nullptr) return false;
    // What could not leave at once leaves while we wait, one message at a time.
    const bool more = server.policy != nullptr || !server.to_send.empty();
    Incoming* const message =
        server.stream->Receive(more ? std::min(deadline, Clock::now() + kPushAgain) : deadline);
    if (message != nullptr && TakeAnswer(server, *message)) return true;
  } while (!server.stream->closed() && Clock::now() < deadline);
  ++server.silences;
  if (server.stream->closed()) Lose(server);
  return false;
}

bool RemoteReplay::TakeAnswer(Server& server, Incoming& message) {
  const ReplayAnswer answer =
      DecodeAnswer(message, run_.part, ReplayBuffer::RecordSize(layout_, run_.shape.env.action.size()),
                   static_cast<std::size_t>(server.owed));
  server.heard_s = MonotonicSeconds();
  server.silences = 0;
  server.told = false;
  server.actors = answer.actors;
  if (answer.draws == 0) return false;
  server.arrived = &message;
  server.unread = answer.draws;
  episodes_ += answer.episodes;
  received_.lag += answer.lag;
  return true;
}

std::string RemoteReplay::Names() const {
  std::string names;
  for (const std::string& name : options_.servers) names += (names.empty() ? "" : ", ") + name;
  return names;
}

RemoteReplay::Server& RemoteReplay::LikelyNext() {
  const auto heard_s = [](const auto& server) { return server->stream == nullptr ? -1 : server->heard_s; };
  const auto last = std::ranges::max_element(servers_, {}, heard_s);
  return (*last)->stream == nullptr ? *servers_[turn_++ % servers_.size()] : **last;
}

void RemoteReplay::TellAway(Server& server) {
  if (run_.learner != 0 || servers_.size() == 1 || server.told) return;
  if (MonotonicSeconds() < server.AwaySince() + kTell) return;
  if (server.stream != nullptr && server.silences < kListened) return;
  server.told = true;
  options_.say(fmt::format("the replay server at {} does not answer: the learner goes on with the others",
                           server.address));
}

void RemoteReplay::Look(double begun_s) {
  const double now_s = MonotonicSeconds(), waited_s = now_s - begun_s;
  const auto away_s = [&](const auto& server) { return now_s - std::max(server->AwaySince(), begun_s); };
  const auto away = [&](const auto& server) { return server->stream == nullptr || away_s(server) > kAway; };
  const bool nobody = std::ranges::all_of(servers_, away);
  const bool collected =
      std::ranges::any_of(servers_, [&](const auto& server) { return !away(server) && server->actors > 0; });
  options_.give_up(waited_s, collected);
  if (waited_s > kTell && !collected && !std::exchange(said_, true)) {
    options_.say(
        nobody
            ? fmt::format("no replay server answers: {}", Names())
            : fmt::format("no experience comes: actors join replay servers with: trireme actor --learner {}",
                          options_.servers.front()));
  }
  for (const auto& server : servers_) {
    if (away_s(server) < options_.wait_s || !away(server)) continue;
    const std::string what =
        nobody ? fmt::format("no replay server has answered for {:g} seconds at {}", options_.wait_s, Names())
               : fmt::format(
                     "no experience has come for {:g} seconds, and the replay server at {} does not "
                     "answer",
                     options_.wait_s, server->address);
    Fail("{}: start {} again, and go on with trireme train --resume", what, nobody ? "them" : "it");
  }
}

const ReplayDraw& RemoteReplay::Draw(int, std::uint64_t, double beta) {
  beta_ = beta;
  const double begun_s = MonotonicSeconds();
  const std::size_t count = servers_.size();
  for (;;) {
    bool taken = false;
    for (std::size_t i = 0; i < count && !taken; ++i) taken = Take(*servers_[turn_++ % count], Clock::now());
    if (taken || Take(LikelyNext(), Clock::now() + kMoment)) break;
    Look(begun_s);
  }
  said_ = false;
  received_.waited_s += MonotonicSeconds() - begun_s;
  return draw_;
}

void RemoteReplay::Correct(int, std::span<const float> errors) {
  Server& server = *drawn_from_;
  if (server.stream == nullptr) return;
  server.numbers.insert(server.numbers.end(), draw_.numbers.begin(), draw_.numbers.end());
  server.errors.insert(server.errors.end(), errors.begin(), errors.end());
  Ask(server);
  Push(server);
}

EpisodeTotals RemoteReplay::TakeEpisodes(int shard) {
  return shard == 0 ? std::exchange(episodes_, {}) : EpisodeTotals();
}

RemoteReplay::Farewell RemoteReplay::TellEnd(Server& server) {
  try {
    if (!Connect(server, Clock::now())) return Farewell::kAwaited;
    Stream& stream = *server.stream;
    Send(server);                                    // a policy too: without one actors are not let in
    while (stream.Receive(Clock::now()) != nullptr)  // what it still owed is not looked at
      server.heard_s = MonotonicSeconds();
    if (!stream.closed()) return Farewell::kAwaited;
    if (stream.why() == kRunIsOver) return Farewell::kHeard;
    Lose(server);
    return Farewell::kAwaited;
  } catch (const Error&) {  // it is another run's by now
    return Farewell::kUseless;
  }
}

void RemoteReplay::EndRun(Deadline begun) {
  over_ = true;
  const double begun_s = MonotonicSeconds();
  std::vector<Server*> left;
  for (const auto& server : servers_) {
    left.push_back(server.get());
    server->unread = 0;
    server->to_send.push_back(Word(ReplayWord::kOver));
  }
  // All at the same time: one that is silent takes nothing from the time of the others.
  for (;;) {
    const Deadline now = Clock::now();
    std::erase_if(left, [&](Server* server) {
      const Farewell farewell = TellEnd(*server);
      if (farewell == Farewell::kHeard) return true;
      const bool silent = server->stream == nullptr || server->heard_s < begun_s;
      if (farewell == Farewell::kAwaited && now < begun + (silent ? kSilence : kFarewell)) return false;
      if (run_.learner == 0) {
        options_.say(fmt::format(
            "the replay server at {} has not heard that the run is over: stop it, if it comes back",
            server->address));
      }
      return true;
    });
    if (left.empty()) return;
    std::this_thread::sleep_until(now + kMoment);
  }
}

}  // namespace trireme
