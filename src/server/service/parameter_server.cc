#include "trireme/server/service/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "trireme/base/text.h"

namespace trireme {
namespace {

// How many streams may be of clients that have not proved themselves, and how long one may be.
constexpr int kMostStrangers = 32;
constexpr std::chrono::seconds kStrangerTime{10};

// The longest kState that a worker with these terms may send.
std::size_t StateBytes(const RunTerms& terms, int part) {
  const std::size_t size = RangeOfServer(terms, part).size;
  return sizeof(Header) + size * (1 + terms.moments()) * sizeof(float);
}

}  // namespace

ParameterServer::ParameterServer(ServerTransport& transport, ParameterServerOptions options)
    : transport_(transport), options_(std::move(options)) {
  // Names and errors may be a client's own words.
  options_.say = [say = std::move(options_.say)](const std::string& line) { say(Printable(line)); };
  if (options_.folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error)
    Fail("--dir {}: {}. Choose a folder that can be written", options_.folder.string(), error.message());
  lock_ = std::make_unique<ServerFolderLock>(options_.folder);
  for (int index = 0; index < kMostServers; ++index) {
    if (!std::filesystem::exists(StorageOf(index).folder, error)) continue;
    std::unique_ptr<ParameterPart> part = ParameterPart::Recover(StorageOf(index));
    if (!part) continue;
    if (!part->remark().empty()) options_.say(part->remark());
    const RunTerms terms = RunTerms::Decode(part->setup().identity);
    options_.say(
        fmt::format("found part {}: {} on {}, {} updates", index, terms.algo, terms.env, part->updates()));
    parts_[index] =
        std::make_unique<PartService>(transport_, terms, index, std::move(part), options_.say, true);
  }
}

ParameterServer::~ParameterServer() = default;

PartStorage ParameterServer::StorageOf(int part) const {
  PartStorage storage;
  storage.durable = options_.durable;
  storage.accept_loss = options_.accept_loss;
  if (options_.folder.empty()) return storage;
  storage.folder = options_.folder / fmt::format("shard-{}", part);
  if (options_.audit) storage.audit = options_.folder / fmt::format("audit-{}", part);
  return storage;
}

// The newest stranger is the likeliest to be about to say hello.
void ParameterServer::OnOpen(PeerId peer, const std::string& address) {
  peers_[peer] = {.address = address, .since = Clock::now()};
  const auto stranger = [](const auto& entry) { return entry.second.stranger; };
  if (std::count_if(peers_.begin(), peers_.end(), stranger) <= kMostStrangers) return;
  CloseStranger(std::find_if(peers_.begin(), peers_.end(), stranger)->first,
                fmt::format("{} others have come since and not said hello either", kMostStrangers));
}

void ParameterServer::CloseStranger(PeerId peer, const std::string& why) {
  peers_[peer].stranger = false;
  transport_.Close(peer, fmt::format("{}{}", kLater, why));
}

void ParameterServer::OnMessage(PeerId peer, Incoming& message) {
  Guard(peer, [&] { Handle(peer, message); });
}

void ParameterServer::Guard(PeerId peer, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    Refuse(peer, error.what());
  } catch (const std::bad_alloc&) {
    Refuse(peer, "the server has no memory left for this: give it more, or the run more servers");
  }
}

void ParameterServer::Refuse(PeerId peer, const std::string& why) {
  options_.say(fmt::format("{}: {}", peers_[peer].address, why));
  transport_.Close(peer, why);
}

void ParameterServer::Handle(PeerId peer, Incoming& message) {
  const Header header = ReadHeader(message);
  if (header.encoded > 0 && header.kind != MessageKind::kPush) {
    Fail("a message of kind {} with {} compressed bytes", static_cast<std::uint32_t>(header.kind),
         header.encoded);
  }
  switch (header.kind) {
    case MessageKind::kHello:
      return Hello(peer, header, message);
    case MessageKind::kState:
      return TakeState(peer, header, message);
    case MessageKind::kAlive:
      return Alive(peer, header, message);
    default: {
      const auto part = parts_.find(peers_[peer].part);
      if (part == parts_.end()) Fail("a request before a hello");
      return part->second->Handle(peer, header, message, Clock::now());
    }
  }
}

void ParameterServer::Hello(PeerId peer, const Header& header, Incoming& message) {
  if (header.floats > 0 || header.doubles > 0 || header.bytes > 65536)
    Fail("a hello of {} bytes", header.bytes);
  if (peers_[peer].part >= 0) Fail("a second hello on one stream");
  const Newcomer newcomer{peer, Greeting::Decode(ReadText(message, header)), header.sequence, Clock::now()};
  for (const auto& [index, part] : parts_) part->terms().CheckEqual(newcomer.greeting.terms);
  for (const auto& [index, others] : waiting_)
    others.front().greeting.terms.CheckEqual(newcomer.greeting.terms);
  const int part = newcomer.greeting.server;
  if (const std::size_t bytes = StateBytes(newcomer.greeting.terms, part); bytes > Limits().message) {
    Fail("a part of {} bytes is too large for one server: give the run more servers", bytes);
  }
  peers_[peer].stranger = false;
  peers_[peer].part = part;
  if (parts_.contains(part)) return Join(newcomer);
  if (newcomer.greeting.continues) {
    Fail("this server has no parameters: it was started again without its folder, or serves another run");
  }
  for (const auto& [other, service] : parts_) {
    if (!service->begun()) continue;
    Fail(
        "this server holds part {} of {} of the run, not part {}: give --servers the order of the other "
        "workers",
        other, service->terms().servers, part);
  }
  if (waiting_[part].size() >= kMostWorkers) Fail("{}too many workers wait for this run to begin", kLater);
  waiting_[part].push_back(newcomer);
  if (waiting_[part].size() == 1) AskForState(part);
}

void ParameterServer::Join(const Newcomer& newcomer) {
  parts_.at(newcomer.greeting.server)
      ->Join(newcomer.peer, newcomer.greeting, newcomer.sequence, Clock::now(),
             peers_[newcomer.peer].address);
  transport_.Allow(newcomer.peer, SIZE_MAX);
}

void ParameterServer::AskForState(int part) {
  const Newcomer& first = waiting_.at(part).front();
  transport_.Allow(first.peer, std::max(Limits().first, StateBytes(first.greeting.terms, part)));
  transport_.Send(first.peer, MakeMessage({.kind = MessageKind::kNeedState,
                                           .worker = first.greeting.worker,
                                           .sequence = first.sequence}));
}

void ParameterServer::TakeState(PeerId peer, const Header& header, Incoming& message) {
  const int index = peers_[peer].part;
  const auto waiting = waiting_.find(index);
  if (waiting == waiting_.end() || waiting->second.front().peer != peer) Fail("a state nobody asked for");
  const RunTerms& terms = waiting->second.front().greeting.terms;
  const PartRange range = RangeOfServer(terms, index);
  const std::size_t moments = terms.moments() * range.size;
  if (header.floats != range.size && header.floats != range.size + moments) {
    Fail("a state of {} floats for {} parameters", header.floats, range.size);
  }
  if (header.steps < 0 || static_cast<std::uint64_t>(header.steps) > kMostUpdates ||
      header.number > kMostUpdates) {
    Fail("a state after {} steps and {} updates", header.steps, header.number);
  }
  std::vector<float> state(header.floats);
  ReadFloats(message, state);
  if (!std::all_of(state.begin(), state.end(), [](float value) { return std::isfinite(value); })) {
    Fail("a state with values that are not finite");
  }
  const std::span<const float> all = state;
  auto part = std::make_unique<ParameterPart>(PartSetup{.identity = terms.Encode(),
                                                        .optimizer = terms.optimizer,
                                                        .begin = range.begin,
                                                        .size = range.size,
                                                        .compress = terms.params_codec_in_step()},
                                              StorageOf(index), all.first(range.size),
                                              all.subspan(range.size), header.number, header.steps);
  options_.say(fmt::format("part {} of {}: {} on {}, {} parameters", index, terms.servers, terms.algo,
                           terms.env, range.size));
  parts_[index] =
      std::make_unique<PartService>(transport_, terms, index, std::move(part), options_.say, false);
  const std::vector<Newcomer> newcomers = std::move(waiting->second);
  waiting_.erase(waiting);
  for (const Newcomer& newcomer : newcomers) {
    Guard(newcomer.peer, [&] { Join(newcomer); });
  }
}

// A process says that its workers live, whatever they are busy with.
void ParameterServer::Alive(PeerId peer, const Header& header, Incoming& message) {
  if (header.floats > 0 || header.doubles > 0 || header.bytes % sizeof(std::uint64_t) != 0 ||
      header.bytes > 65536) {
    Fail("a sign of life of {} bytes", header.bytes);
  }
  std::vector<std::uint64_t> workers(header.bytes / sizeof(std::uint64_t));
  message.Read(std::as_writable_bytes(std::span(workers)));
  const Deadline now = Clock::now();
  for (const auto& [index, part] : parts_) {
    for (const std::uint64_t worker : workers) {
      part->RenewLease(worker, now);
      if (part->members().all().contains(worker)) peers_[peer].stranger = false;
    }
  }
}

void ParameterServer::OnClose(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const int index = found->second.part;
  peers_.erase(found);
  if (const auto part = parts_.find(index); part != parts_.end()) part->second->Disconnect(peer);
  const auto waiting = waiting_.find(index);
  if (waiting == waiting_.end()) return;
  const bool asked = waiting->second.front().peer == peer;
  std::erase_if(waiting->second, [&](const Newcomer& newcomer) { return newcomer.peer == peer; });
  if (waiting->second.empty()) {
    waiting_.erase(waiting);
  } else if (asked) {
    Newcomer& next = waiting->second.front();
    next.since = Clock::now();
    Guard(next.peer, [&] { AskForState(index); });
  }
}

// A disk that fails now is tried again next time.
Deadline ParameterServer::OnTime(Deadline now) {
  double lease_s = 1;
  for (const auto& [index, part] : parts_) {
    try {
      part->OnTime(now);
    } catch (const Error& error) {
      options_.say(fmt::format("part {}: {}", index, error.what()));
    } catch (const std::bad_alloc&) {
      options_.say(fmt::format("part {}: the server has no memory left", index));
    }
    lease_s = std::min(lease_s, part->terms().lease_s);
  }
  TellWaiting(now);
  for (const auto& [peer, about] : peers_) {
    if (!about.stranger || now - about.since < kStrangerTime) continue;
    CloseStranger(peer, fmt::format("no hello came for {} s", kStrangerTime.count()));
  }
  return now + Seconds(lease_s / 4);
}

// Whoever was asked for the state and does not send it makes room for the next.
void ParameterServer::TellWaiting(Deadline now) {
  for (const auto& [index, newcomers] : waiting_) {
    const Newcomer& asked = newcomers.front();
    for (const Newcomer& newcomer : newcomers) {
      transport_.Send(newcomer.peer,
                      MakeMessage({.kind = MessageKind::kWaiting,
                                   .worker = newcomer.greeting.worker,
                                   .sequence = newcomer.sequence},
                                  {}, {},
                                  fmt::format("part {} waits for its parameters from the worker at {}", index,
                                              peers_[asked.peer].address)));
    }
    if (now - asked.since > Seconds(asked.greeting.terms.round_s)) {
      transport_.Close(asked.peer,
                       fmt::format("{}no parameters came for {} s", kLater, asked.greeting.terms.round_s));
    }
  }
}

}  // namespace trireme
