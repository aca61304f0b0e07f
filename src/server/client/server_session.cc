#include "trireme/server/client/server_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/system.h"

namespace trireme {
namespace {

// Times that a worker finds the same difference between the versions of servers before it takes that for theirs.
constexpr int kAlike = 3;

}  // namespace

ServerSession::ServerSession(std::vector<ServerPlace> places, const RunTerms& terms, std::uint64_t id,
                             bool candidate)
    : terms_(terms), id_(id), candidate_(candidate), params_(terms.params), versions_(places.size()) {
  TRIREME_CHECK(static_cast<int>(places.size()) == terms.servers);
  if (terms.compress_params != kNoCodec) {
    std::size_t most = 0;
    for (int server = 0; server < terms.servers; ++server) most = std::max(most, range(server).size);
    coder_.emplace(terms.compress_params, most);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    links_.push_back(std::make_unique<ServerLink>(std::move(places[i]),
                                                  [this, i] { return StateMessage(static_cast<int>(i)); }));
  }
}

void ServerSession::Offer(std::span<const float> params, const std::vector<std::span<const float>>& moments,
                          std::uint64_t updates) {
  TRIREME_CHECK(params.size() == params_.size());
  std::copy(params.begin(), params.end(), params_.begin());
  offered_moments_.clear();
  for (const std::span<const float> moment : moments) {
    offered_moments_.emplace_back(moment.size());
    std::copy(moment.begin(), moment.end(), offered_moments_.back().begin());
  }
  offered_updates_ = updates;
}

Outgoing ServerSession::StateMessage(int server) const {
  const PartRange part = range(server);
  std::vector<float> state(params_.begin() + part.begin, params_.begin() + part.begin + part.size);
  for (const AlignedBuffer<float>& moment : offered_moments_) {
    state.insert(state.end(), moment.begin() + part.begin, moment.begin() + part.begin + part.size);
  }
  Header header{
      .kind = MessageKind::kState, .worker = id_, .steps = offered_steps_, .number = offered_updates_};
  return MakeMessage(header, state);
}

// Where not all are waited for, the others may have made rounds between the welcomes of two servers: those of the last one are
// then ahead. What servers have undone counts as versions, too, so they may also differ for good, by always as much.
ServerSession::Entry ServerSession::Join() {
  std::vector<std::uint64_t> ahead, before;  // of the first server
  for (int alike = 1;; ++alike) {
    Entry entry = JoinServers();
    if (terms_.pace != Pace::kSync || terms_.backup_workers == 0 || finished_) return entry;
    ahead.clear();
    for (const std::uint64_t version : versions_) ahead.push_back(version - versions_[0]);
    if (std::exchange(before, ahead) != ahead) alike = 1;
    if (alike == kAlike || std::ranges::all_of(ahead, [](std::uint64_t by) { return by == 0; })) return entry;
  }
}

// The first server gives the rank; in step it does so at a boundary.
ServerSession::Entry ServerSession::JoinServers() {
  Entry entry;
  joined_ = true;
  std::int64_t anew = -1;
  for (int server = 0; server < servers(); ++server) {
    const Greeting greeting{.worker = id_,
                            .rank = rank(),
                            .candidate = candidate_,
                            .server = server,
                            .anew = anew,
                            .boundary = std::min(boundary_, kMostUpdates),
                            .terms = terms_};
    const PartRange part = range(server);
    const Welcome welcome = links_[server]->Join(greeting, params_.span().subspan(part.begin, part.size));
    versions_[server] = welcome.header.version;
    OnAnswer(server, welcome.header);
    if (server == 0) {
      next_operation_ = welcome.header.number;
      if (welcome.header.flags & (kBoundary | kAnew)) boundary_ = next_operation_;
      if (welcome.header.flags & kAnew) {
        anew = static_cast<std::int64_t>(std::min(welcome.header.boundary, kMostUpdates));
        unsent_steps_ = 0;  // of an iteration that is made again
      }
      entry = {(welcome.header.flags & kBoundary) != 0, welcome.state};
    }
    links_[server]->Continue();
  }
  return entry;
}

void ServerSession::Leave() {
  if (!std::exchange(joined_, false)) return;
  for (const auto& link : links_) {
    link->Forget();
    link->Tell(MakeMessage(link->MakeRequest(MessageKind::kLeave)));
  }
}

void ServerSession::OnAnswer(int server, const Header& answer) {
  if (server != 0) return;
  steps_ = answer.steps;
  leader_ = answer.leader;
  members_ = static_cast<int>(answer.members);
  finished_ = (answer.flags & kFinished) != 0;
}

void ServerSession::Take(int server, const Header& answer, Incoming& message, std::vector<float>* extras) {
  const PartRange part = range(server);
  OnAnswer(server, answer);
  if (answer.flags & kBehind) throw FellBehind("the other workers are further");
  const bool differs = answer.encoded > 0;
  const std::size_t whole = differs ? 0 : part.size;
  if (answer.kind != MessageKind::kParams || answer.floats < whole || (differs && !coder_)) {
    Fail("server {} answered a message of kind {} with {} floats and {} compressed bytes",
         links_[server]->address(), static_cast<std::uint32_t>(answer.kind), answer.floats, answer.encoded);
  }
  const std::span<float> params = params_.span().subspan(part.begin, part.size);
  if (differs) {
    const AlignedBuffer<std::byte> message_bytes = ReadEncoded(message, answer);
    const double begun_s = MonotonicSeconds();
    coder_->Add(message_bytes.span(), params);
    decode_s_ += MonotonicSeconds() - begun_s;
    bytes_saved_ += static_cast<std::int64_t>(params.size_bytes()) - answer.encoded;
  } else {
    ReadFloats(message, params);
  }
  versions_[server] = answer.version;
  links_[server]->Holds(answer);
  if (extras == nullptr) return;
  extras->resize(answer.floats - whole);
  ReadFloats(message, *extras);
}

void ServerSession::TakeAnswers(const TakeAnswer& take) {
  const auto await = [&](int server, Deadline until) {
    Header answer;
    Incoming* const message = links_[server]->Await(answer, until);
    if (message != nullptr) take(server, answer, *message);
    return message != nullptr;
  };
  const auto owes = [](const auto& link) { return link->asking(); };
  for (;;) {
    const auto first = std::ranges::find_if(links_, owes);
    if (first == links_.end()) return;
    if (await(static_cast<int>(first - links_.begin()), Clock::now() + ServerLink::kLook)) continue;
    for (int server = 0; server < servers(); ++server) {
      if (links_[server] == *first) continue;
      if (links_[server]->asking()) {
        await(server, Clock::now());
      } else {
        links_[server]->LookAfter();
      }
    }
  }
}

void ServerSession::Pull(bool resting) {
  settle_();
  for (const auto& link : links_) {
    Header header = link->MakeRequest(MessageKind::kPull);
    if (resting) header.flags |= kResting;
    link->Ask(header, MakeMessage(header));
  }
  TakeAnswers([this](int server, const Header& answer, Incoming& message) { Take(server, answer, message); });
}

void ServerSession::Rest() {
  for (const auto& link : links_) link->Forget();
  Pull(true);
}

void ServerSession::Finish() {
  settle_();
  for (int server = 0; server < servers(); ++server) {
    const Header header = links_[server]->MakeRequest(MessageKind::kFinish);
    links_[server]->Ask(header, MakeMessage(header));
    Header answer;
    links_[server]->Answer(answer);
    OnAnswer(server, answer);
  }
}

void ServerSession::Fetch(std::vector<AlignedBuffer<float>>& moments, std::uint64_t& updates) {
  settle_();
  for (int server = 0; server < servers(); ++server) {
    const Header header = links_[server]->MakeRequest(MessageKind::kFetch);
    links_[server]->Ask(header, MakeMessage(header));
    Header answer;
    Incoming& message = links_[server]->Answer(answer);
    const PartRange part = range(server);
    if (answer.kind != MessageKind::kState || answer.floats != part.size * (1 + moments.size())) {
      Fail("server {} answered a request for its state with {} floats", links_[server]->address(),
           answer.floats);
    }
    ReadFloats(message, params_.span().subspan(part.begin, part.size));
    links_[server]->Holds(answer);
    for (AlignedBuffer<float>& moment : moments)
      ReadFloats(message, moment.span().subspan(part.begin, part.size));
    updates = answer.number;
  }
}

void ServerSession::MeasureLinks() {
  settle_();
  for (const auto& link : links_) {
    if (!link->link().measured()) link->Measure();
  }
}

std::vector<ProcessLink> ServerSession::links() const {
  std::vector<ProcessLink> all;
  for (const auto& link : links_) all.push_back(link->link());
  return all;
}

}  // namespace trireme
