#include "trireme/experience/remote_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

constexpr auto kLook = 100ms;        // who waits looks for a reason to give up so often
constexpr auto kPatience = 500ms;    // with a server, before it is passed over
constexpr double kAgain = 0.25;      // seconds between attempts to connect
constexpr double kTell = 5;          // seconds after which people are told
constexpr std::size_t kMostKept = 64;  // messages for a server that does not take them

Outgoing Word(ReplayWord word) {
  MessageWriter writer(sizeof word);
  writer.PutOne(word);
  return writer.Done();
}

Outgoing PolicyMessage(std::span<const float> params) {
  const PolicyHeader header{.version = 1, .params = params.size()};  // servers count for themselves
  MessageWriter writer(sizeof(ReplayWord) + sizeof header + params.size_bytes());
  writer.PutOne(ReplayWord::kPolicy);
  writer.PutOne(header);
  writer.Put(params);
  return writer.Done();
}

}  // namespace

struct RemoteReplay::Server {
  std::uint32_t index;
  std::string address;
  std::unique_ptr<Stream> stream = nullptr;  // null: not connected
  bool away = false;                         // it has not answered in time
  double tried_s = -1e9;                     // when it was connected last
  std::uint64_t asked = 0;                   // draws, on this stream
  int owed = 0;
  std::deque<Outgoing> to_send = {};
  Outgoing policy = nullptr;  // the newest, where it has not left yet
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
    while (!Connect(*server)) {
      const double waited_s = MonotonicSeconds() - begun_s;
      if (waited_s > options_.wait_s) {
        Fail("no replay server has answered at {} for {:g} seconds: start it with `trireme replay --listen`",
             server->address, options_.wait_s);
      }
      options_.give_up(waited_s);
      std::this_thread::sleep_for(kLook);
    }
  }
}

RemoteReplay::~RemoteReplay() = default;

// Throws Error when the server does not want us.
bool RemoteReplay::Connect(Server& server) {
  const double now_s = MonotonicSeconds();
  if (now_s < server.tried_s + kAgain) return false;
  server.tried_s = now_s;
  Transport& transport = options_.transport != nullptr ? *options_.transport : TransportFor(server.address);
  server.stream = transport.Connect(server.address, options_.security);
  server.asked = 0;
  server.owed = 0;
  server.to_send.clear();
  run_.server = server.index;
  const auto send = [&](const Outgoing& message) { return server.stream->Send(message, Clock::now() + 1s); };
  Incoming* answer = nullptr;
  if (send(TextMessage(Json{{"learn", options_.version}}.dump())) && send(TextMessage(run_.Encode())))
    answer = server.stream->Receive(Clock::now() + 5s);
  if (answer == nullptr) {
    Lose(server);
    return false;
  }
  try {
    Json::parse(ReadText(*answer)).at("welcome");
  } catch (const Json::exception&) {
    Fail("what answers at {} is no replay server", server.address);
  }
  server.away = false;
  if (!params_.empty()) server.policy = PolicyMessage(params_);
  return true;
}

// Throws Error when it is no use to come back.
void RemoteReplay::Lose(Server& server) {
  const std::string why = server.stream->why();
  const bool closed = server.stream->closed();
  server.stream.reset();
  server.owed = 0;
  if (!closed || why.empty() || why.starts_with(kComesBack) || why.starts_with(server.address)) return;
  Fail("the replay server at {}: {}", server.address, Printable(why));
}

void RemoteReplay::Push(Server& server) {
  if (server.stream == nullptr) return;
  if (server.policy != nullptr && server.stream->Send(server.policy, Clock::now())) server.policy = nullptr;
  while (!server.to_send.empty() && server.stream->Send(server.to_send.front(), Clock::now()))
    server.to_send.pop_front();
  if (server.stream->closed()) Lose(server);
}

void RemoteReplay::Ask(Server& server, double beta) {
  server.to_send.push_back(EncodeTurn({.wanted = ++server.asked, .beta = beta}, {}, {}));
  ++server.owed;
  Push(server);
}

void RemoteReplay::Begin(std::span<const float> params) {
  params_.assign(params.begin(), params.end());
  const Outgoing policy = PolicyMessage(params_);
  for (const auto& server : servers_) {
    server->policy = policy;
    Push(*server);
  }
}

bool RemoteReplay::Take(Server& server, Deadline deadline) {
  if (server.stream == nullptr && !Connect(server)) return false;
  while (server.owed < options_.ahead && server.stream != nullptr) Ask(server, beta_);
  Push(server);
  if (server.stream == nullptr) return false;
  Incoming* const message = server.stream->Receive(deadline);
  if (message == nullptr) {
    if (server.stream->closed()) Lose(server);
    return false;
  }
  const ReplayAnswer answer =
      DecodeDraw(*message, layout_, run_.shape.env.action.size(), records_, draw_);
  --server.owed;
  server.away = false;
  episodes_ += answer.episodes;
  received_.lag += answer.lag;
  drawn_from_ = &server;
  return true;
}

std::string RemoteReplay::Names() const {
  std::string names;
  for (const std::string& name : options_.servers) names += (names.empty() ? "" : ", ") + name;
  return names;
}

void RemoteReplay::Look(double waited_s) {
  options_.give_up(waited_s);
  if (waited_s > kTell && !std::exchange(said_, true))
    options_.say(fmt::format("no replay server answers: {}", Names()));
  if (waited_s > options_.wait_s && std::ranges::all_of(servers_, [](const auto& s) { return s->stream == nullptr; })) {
    Fail("no replay server has answered for {:g} seconds at {}: start them again, and go on with trireme train --resume",
         options_.wait_s, Names());
  }
}

const ReplayDraw& RemoteReplay::Draw(int, std::uint64_t, double beta) {
  beta_ = beta;
  const double begun_s = MonotonicSeconds();
  for (;;) {
    // Whoever has not been passed over is waited for; the others are only looked at.
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      Server& server = *servers_[turn_++ % servers_.size()];
      const bool alone = std::ranges::all_of(servers_, [](const auto& s) { return s->away; });
      const auto patience = alone ? std::chrono::milliseconds(kLook) / static_cast<int>(servers_.size())
                                  : server.away ? 0ms : std::chrono::milliseconds(kPatience);
      if (Take(server, Clock::now() + patience)) {
        said_ = false;
        received_.waited_s += MonotonicSeconds() - begun_s;
        return draw_;
      }
      server.away = true;
    }
    Look(MonotonicSeconds() - begun_s);
  }
}

void RemoteReplay::Correct(int, std::span<const float> errors) {
  Server& server = *drawn_from_;
  // One that takes nothing is told no more: it will be asked anew.
  if (server.stream == nullptr || server.to_send.size() > kMostKept) return;
  const std::uint64_t wanted = server.owed < options_.ahead ? ++server.asked : 0;
  server.owed += wanted != 0;
  server.to_send.push_back(EncodeTurn({.wanted = wanted, .beta = beta_, .corrected = errors.size()},
                                      draw_.numbers, errors));
  Push(server);
}

EpisodeTotals RemoteReplay::TakeEpisodes(int shard) {
  return shard == 0 ? std::exchange(episodes_, {}) : EpisodeTotals();
}

void RemoteReplay::EndRun() {
  for (const auto& server : servers_) {
    if (server->stream != nullptr) server->stream->Send(Word(ReplayWord::kOver), Clock::now() + 1s);
  }
}

}  // namespace trireme
