#include "trireme/server/client/server_store.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/metrics/append_file.h"
#include "trireme/optim/clip.h"
#include "trireme/server/payload.h"

namespace trireme {
namespace {

// Behind the optimizer's moments there may be exact parameters: see RunTerms::moments.
std::string MomentName(const RunTerms& terms, std::size_t m) {
  return m < OptimizerRule(terms.optimizer).moments() ? fmt::format("optimizer/moment{}", m) : kExactParams;
}

std::vector<AlignedBuffer<float>> MakeMoments(const ServerSession& session) {
  std::vector<AlignedBuffer<float>> moments;
  for (std::size_t m = 0; m < session.terms().moments(); ++m) {
    moments.emplace_back(session.terms().params);
  }
  return moments;
}

class AsyncServerStore final : public ServerStore {
 public:
  AsyncServerStore(ServerSession& session, bool overlap, const std::string& audit)
      : ServerStore(session), overlap_(overlap), pushed_(session.servers()) {
    if (!audit.empty()) audit_ = std::make_unique<AppendFile>(audit, UINT64_MAX);
    session.SetSettle([this] { Collect(true); });
  }
  ~AsyncServerStore() override {
    session_.SetSettle([] {});
  }

  std::span<const float> Pull() override {
    Join();
    Collect(!overlap_);
    return params();
  }

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    Join();
    const std::span<float> own = gradient.first(params().size());
    const double norm = ClipGradient(own, rule.max_grad_norm, rule.groups);
    if (!std::isfinite(norm)) return norm;
    std::vector<std::uint64_t> versions(session_.servers());  // that the gradient was computed with
    for (int server = 0; server < session_.servers(); ++server) versions[server] = session_.version(server);
    Collect(true);
    ++pushes_;
    for (int server = 0; server < session_.servers(); ++server) {
      ServerLink& link = session_.link(server);
      Header header = link.MakeRequest(MessageKind::kPush);
      header.version = versions[server];
      header.steps = server == 0 ? session_.TakeSteps() : 0;
      pushed_[server] = header;
      link.Ask(header, PushMessage(header, server, own, {}, rule));
    }
    if (!overlap_) Collect(true);
    return norm;
  }

  void Share(std::span<double>) override {}

  void Refresh() override {
    Join();
    session_.Pull();
  }

 private:
  void Join() {
    if (!session_.joined()) session_.Join();
  }

  // Takes the answers to the last push: all of them, or those that are there.
  void Collect(bool wait) {
    const auto take = [this](int server, const Header& answer, Incoming& message) {
      const Header& push = pushed_[server];
      if (server == 0 && answer.number > push.version) staleness_.Add(answer.number - push.version - 1);
      session_.Take(server, answer, message);
      if (audit_) audit_->Append(fmt::format("{} {} {}\n", server, push.worker, push.sequence));
    };
    if (wait) return session_.TakeAnswers(take);
    for (int server = 0; server < session_.servers(); ++server) {
      ServerLink& link = session_.link(server);
      if (!link.asking()) continue;
      Header answer;
      if (Incoming* const message = link.Await(answer, Clock::now())) take(server, answer, *message);
    }
  }

  bool overlap_;
  std::vector<Header> pushed_;  // the last push, by server
  std::unique_ptr<AppendFile> audit_;
};

class SyncServerStore final : public ServerStore {
 public:
  SyncServerStore(ServerSession& session, Communicator& comm) : ServerStore(session), comm_(comm) {}

  std::span<const float> Pull() override { return params(); }
  void Refresh() override {}
  void ExpectOverflow() override { expects_overflow_ = true; }
  // Sums of fewer workers stand for all, as those of gradients do.
  void Share(std::span<double> values) override {
    shared_.assign(values.begin(), values.end());
    shared_.push_back(1);
    comm_.AllReduceSum(std::span(shared_));
    const double present = shared_.back(), workers = session_.terms().workers;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = present == workers ? shared_[i] : shared_[i] * (workers / present);
    }
  }

  // The statistics behind the gradient are then the sums over all workers; the gradient itself stays this
  // worker's.
  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    const std::size_t size = params().size();
    const double norm = std::sqrt(SquaredNorm(gradient.first(size)));
    if (!expects_overflow_ && !std::isfinite(norm)) return norm;
    if (expects_overflow_ && Overflows(!std::isfinite(norm), gradient.subspan(size)))
      return std::numeric_limits<double>::infinity();
    // The others have begun without this worker, whose gradient is of no use.
    if (!std::isfinite(norm)) std::ranges::fill(gradient.first(size), 0.0f);
    for (std::size_t i = 0; i < owed_.size(); ++i) gradient[i] += owed_[i];
    owed_.clear();
    ++pushes_;
    parts_.assign(session_.servers(), {});
    statistics_ = gradient.subspan(size);
    for (int server = 0; server < session_.servers(); ++server) {
      ServerLink& link = session_.link(server);
      link.Forget();
      Header header = link.MakeRequest(MessageKind::kPush);
      header.version = session_.version(server);
      header.boundary = session_.boundary();
      header.max_grad_norm = rule.max_grad_norm;
      header.steps = server == 0 ? session_.TakeSteps() : 0;
      const auto extras = server == 0 ? statistics_ : std::span<float>();
      parts_[server].push = PushMessage(header, server, gradient, extras, rule);
      link.Ask(header, parts_[server].push, parts_[server].push);
    }
    try {
      TakeAnswers();
      while (!std::ranges::all_of(parts_, &Part::applied)) {
        if (AskForOthers()) continue;
        Commit(rule);
      }
    } catch (const FellBehind&) {
      TakeBack(gradient);
      throw;
    }
    TakeBack(gradient);
    return Norms(rule.groups).norm();
  }

 private:
  // How far the round is on one server.
  struct Part {
    Outgoing push;
    bool applied = false;
    std::vector<double> squares;
    std::string ranks;        // whose gradients, as the server says it
    std::uint64_t asked = 0;  // the request for those of the ranks that the first server says; 0: none
  };

  // Whether the gradient of any worker is not finite, which all of them learn; `statistics` are then the sums over all
  // workers.
  bool Overflows(bool own, std::span<float> statistics) {
    std::vector<double> values(statistics.begin(), statistics.end());
    values.push_back(own ? 1 : 0);
    Share(values);
    if (values.back() == 0) return false;
    std::copy(values.begin(), values.end() - 1, statistics.begin());
    return true;
  }

  // A round that did without this worker leaves its residuals as they were.
  void TakeBack(std::span<const float> gradient) {
    if (!encoder_) return;
    const auto own = static_cast<std::uint32_t>(session_.rank());
    for (int server = 0; server < session_.servers(); ++server) {
      const Part& part = parts_[server];
      if (part.applied && std::ranges::binary_search(DecodeRanks(part.ranks), own)) continue;
      encoder_->TakeBack(server, gradient, EncodedOf(part.push));
    }
  }

  // Of the sum of all gradients. Throws Error when a server has sent other sums than are due.
  GroupNorms Norms(const ParameterGroups& groups) const {
    GroupNorms norms(groups);
    for (int server = 0; server < session_.servers(); ++server) {
      const PartRange range = session_.range(server);
      const std::vector<double>& squares = parts_[server].squares;
      const std::size_t due = GroupNorms::Segments(groups, range.begin, range.begin + range.size);
      if (squares.size() != due) {
        Fail("server {} has sent {} sums of squares where {} are due", session_.link(server).address(),
             squares.size(), due);
      }
      norms.Add(range.begin, range.begin + range.size, squares);
    }
    return norms;
  }

  // The first server says whose gradients make the round. Whether another one was asked to follow.
  bool AskForOthers() {
    bool any = false;
    for (int server = 1; server < session_.servers(); ++server) {
      Part& part = parts_[server];
      if (part.applied || part.asked > 0 || part.ranks == parts_[0].ranks) continue;
      part.asked = Ask(server, MessageKind::kAskNorms, {}, parts_[0].ranks);
      any = true;
    }
    TakeAnswers();
    return any;
  }

  void Commit(const UpdateRule& rule) {
    const GroupNorms::Scales scales = Norms(rule.groups).ScalesFor(rule.max_grad_norm);
    for (int server = 0; server < session_.servers(); ++server) {
      if (!parts_[server].applied) Ask(server, MessageKind::kCommit, scales.all(), parts_[server].ranks);
    }
    TakeAnswers();
  }

  // Returns the sequence of the request.
  std::uint64_t Ask(int server, MessageKind kind, std::span<const float> scales, const std::string& ranks) {
    ServerLink& link = session_.link(server);
    Header header = link.MakeRequest(kind);
    header.version = session_.version(server);
    link.Ask(header, MakeMessage(header, scales, {}, ranks), parts_[server].push);
    return header.sequence;
  }

  void TakeAnswers() {
    session_.TakeAnswers(
        [this](int server, const Header& answer, Incoming& message) { Take(server, answer, message); });
  }

  void Take(int server, const Header& answer, Incoming& message) {
    Part& part = parts_[server];
    if (answer.kind != MessageKind::kNorms) {
      std::vector<float> sums;
      session_.Take(server, answer, message, &sums);
      part.applied = true;
      session_.link(server).Forget();
      if (server == 0 && sums.size() == statistics_.size()) std::ranges::copy(sums, statistics_.begin());
    }
    part.squares = ReadDoubles(message, answer);
    part.ranks = ReadText(message, answer);
    if (answer.sequence < part.asked) part.asked = 0;  // the server has begun anew
    if (server > 0) return;
    for (Part& other : parts_) {
      if (other.ranks != part.ranks) other.asked = 0;
    }
  }

  std::vector<Part> parts_;  // of the push under way, by server
  std::vector<double> shared_;
  std::span<float> statistics_;
  bool expects_overflow_ = false;
  Communicator& comm_;
};

}  // namespace

ServerStore::ServerStore(ServerSession& session) : session_(session) {
  if (session.terms().compress == kNoCodec) return;
  std::vector<GradientEncoder::Part> parts;
  for (int server = 0; server < session.servers(); ++server)
    parts.push_back({session.range(server).begin, session.range(server).size});
  encoder_.emplace(session.terms().compress, parts);
}

Outgoing ServerStore::PushMessage(Header& header, int server, std::span<const float> gradient,
                                  std::span<const float> extras, const UpdateRule& rule) {
  const PartRange part = session_.range(server);
  const std::span<const float> plain =
      encoder_ ? std::span<const float>() : gradient.subspan(part.begin, part.size);
  const std::string groups = EncodeGroups(rule.groups);
  header.learning_rate = rule.learning_rate;
  header.encoded = encoder_ ? static_cast<std::uint32_t>(encoder_->bytes(server)) : 0;
  header.floats = plain.size() + extras.size();
  header.bytes = groups.size();
  MessageWriter message(header);
  if (encoder_) {
    encoder_->Encode(server, gradient, message.encoded());
    bytes_saved_ += static_cast<std::int64_t>(part.size * sizeof(float)) - header.encoded;
  }
  if (!plain.empty()) std::memcpy(message.floats(), plain.data(), plain.size_bytes());
  if (!extras.empty()) std::memcpy(message.floats() + plain.size_bytes(), extras.data(), extras.size_bytes());
  if (!groups.empty()) std::memcpy(message.bytes(), groups.data(), groups.size());
  return message.Take();
}

Traffic ServerStore::traffic() const {
  Traffic total{.pushes = pushes_,
                .bytes_saved = bytes_saved_ + session_.bytes_saved(),
                .compress_s = encoder_ ? encoder_->seconds() : 0,
                .decompress_s = session_.decode_s()};
  for (const ProcessLink& link : session_.links()) {
    total += {.bytes = link.bytes, .messages = link.messages, .idle_s = link.waited_s};
  }
  return total;
}

void ServerStore::Save(StateWriter& out) const {
  std::vector<AlignedBuffer<float>> moments = MakeMoments(session_);
  std::uint64_t updates = 0;
  try {
    session_.Fetch(moments, updates);
  } catch (const ServerLost&) {
    moments = MakeMoments(session_);
    updates = 0;
    if (session_.terms().params_codec_in_step() != kNoCodec)
      std::ranges::copy(params(), moments.back().begin());
  }
  out.Put<float>("params", params());
  out.PutText("optimizer/kind", OptimizerName(session_.terms().optimizer.kind));
  out.PutValue<std::int64_t>("optimizer/steps", static_cast<std::int64_t>(updates));
  for (std::size_t m = 0; m < moments.size(); ++m)
    out.Put<float>(MomentName(session_.terms(), m), moments[m].span());
}

void ServerStore::Load(const StateReader& in) {
  TRIREME_CHECK(!session_.joined());
  CheckOptimizerKind(session_.terms().optimizer.kind, in.GetText("optimizer/kind"));
  std::vector<AlignedBuffer<float>> moments = MakeMoments(session_);
  AlignedBuffer<float> params(session_.terms().params);
  in.Get<float>("params", params.span());
  std::vector<std::span<const float>> spans;
  for (std::size_t m = 0; m < moments.size(); ++m) {
    const std::string name = MomentName(session_.terms(), m);
    in.Get<float>(name == kExactParams && !in.Has(name) ? "params" : name, moments[m].span());
    spans.push_back(moments[m].span());
  }
  // Nobody holds others than exact ones here.
  if (session_.terms().params_codec_in_step() == kNoCodec && in.Has(kExactParams))
    in.Get<float>(kExactParams, params.span());
  session_.Offer(params.span(), spans,
                 static_cast<std::uint64_t>(in.GetValue<std::int64_t>("optimizer/steps")));
}

void ServerStore::SaveOwn(StateWriter& out) const {
  if (encoder_) encoder_->Save(session_.rank(), out);
}

std::string ServerStore::LoadOwn(const StateReader& in) {
  if (!encoder_) {
    if (session_.rank() == 0) owed_ = GradientEncoder::SumOfAll(in);
    if (!owed_.empty() && owed_.size() != session_.terms().params)
      Fail("what was not sent of gradients is of {} parameters", owed_.size());
    return GradientEncoder::SavedIn(in) == 0 ? "" : "what was not sent of gradients goes with the first one";
  }
  const auto loaded = encoder_->Load(session_.rank(), session_.terms().workers, in);
  return loaded == GradientEncoder::Loaded::kSummed
             ? "what was not sent of gradients is added up over all workers: their number has changed"
             : "";
}

std::unique_ptr<ServerStore> MakeAsyncServerStore(ServerSession& session, bool overlap,
                                                  const std::string& audit) {
  return std::make_unique<AsyncServerStore>(session, overlap, audit);
}

std::unique_ptr<ServerStore> MakeSyncServerStore(ServerSession& session, Communicator& comm) {
  return std::make_unique<SyncServerStore>(session, comm);
}

}  // namespace trireme
