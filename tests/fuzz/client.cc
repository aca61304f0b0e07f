// A worker and what a server may answer: any message at any time, streams that end with or without a reason.
#include <array>
#include <memory>

#include "messages.h"
#include "trireme/base/error.h"
#include "trireme/server/client/server_communicator.h"
#include "trireme/server/client/server_store.h"

namespace trireme::fuzz {
namespace {

constexpr int kMostAnswers = 100;
enum Answer { kMessage, kRaw, kNothing, kClosed, kLaterClosed, kAnswers };

class BytesIn final : public Incoming {
 public:
  explicit BytesIn(Outgoing message) : message_(std::move(message)) {}
  std::size_t size() const override { return message_->size() - offset_; }
  void Read(std::span<std::byte> to) override {
    TRIREME_CHECK(to.size() <= size());
    if (!to.empty()) std::memcpy(to.data(), message_->data() + offset_, to.size());
    offset_ += to.size();
  }

 private:
  Outgoing message_;
  std::size_t offset_ = 0;
};

// Answers out of the input, of which all streams take their part. When it is used up they are closed for
// good.
class HostileTransport final : public Transport {
 public:
  // `codec`: of parameters, or null.
  HostileTransport(Input& in, const Codec* codec) : in_(in), codec_(codec) {}
  std::unique_ptr<Stream> Connect(const std::string&, const Security&, const Limits&) override;
  std::unique_ptr<ServerTransport> Listen(const std::string&, const Security&, const Limits&) override {
    Fail("nobody listens here");
  }

 private:
  class HostileStream;
  Input& in_;
  const Codec* codec_;
  int answers_ = 0;
};

class HostileTransport::HostileStream final : public Stream {
 public:
  explicit HostileStream(HostileTransport& transport) : transport_(transport) {}
  bool Send(Outgoing message, Deadline) override {
    if (closed_) return false;
    std::memcpy(&asked_, message->data(), sizeof asked_);
    return true;
  }
  bool Flush(Deadline) override { return !closed_; }
  Incoming* Receive(Deadline) override {
    if (closed_) return nullptr;
    Input& in = transport_.in_;
    if (in.empty() || ++transport_.answers_ > kMostAnswers) return Close("enough");
    switch (in.Choice(kAnswers)) {
      case kMessage: {
        Header header = asked_;  // sequence, version and number as the worker asked
        header.kind = static_cast<MessageKind>(in.Choice(20));
        header.worker = AnyNumber(in, 0);
        const std::size_t floats[] = {1024, 6, 1030, 0};
        const std::size_t count = floats[in.Choice(4)];
        const bool encoded =
            header.kind == MessageKind::kParams && transport_.codec_ != nullptr && in.Choice(2) == 1;
        const Outgoing plain = AnyMessage(in, header, encoded ? 0 : count);
        return Give(encoded ? WithEncoded(in, plain, transport_.codec_->bytes(count)) : plain);
      }
      case kRaw:
        return Give(ToMessage(in.Text()));
      case kNothing:
        return nullptr;
      case kClosed:
        return Close(in.Text());
      default:
        return Close(std::string(kLater) + in.Text());
    }
  }
  bool closed() const override { return closed_; }
  std::string why() const override { return why_; }

 private:
  Incoming* Give(Outgoing message) {
    incoming_ = std::make_unique<BytesIn>(std::move(message));
    return incoming_.get();
  }
  Incoming* Close(const std::string& why) {
    closed_ = true;
    why_ = why;
    return nullptr;
  }

  HostileTransport& transport_;
  Header asked_;
  std::unique_ptr<BytesIn> incoming_;
  bool closed_ = false;
  std::string why_;
};

std::unique_ptr<Stream> HostileTransport::Connect(const std::string&, const Security&, const Limits&) {
  return std::make_unique<HostileStream>(*this);
}

void Work(ServerSession& session, Communicator& comm, ServerStore& store, int way) {
  std::vector<float> gradient(session.terms().params + 2, 0.5f);
  std::vector<double> doubles = {1, 2};
  std::string text = "text";
  StateWriter state;
  switch (way) {
    case 0:
      store.Pull();
      store.Push(gradient, {.learning_rate = 0.1f, .max_grad_norm = 0.5});
      break;
    case 1:
      session.Pull(true);
      break;
    case 2:
      comm.AllReduceSum(std::span<double>(doubles));
      comm.Broadcast(std::span<float>(gradient));
      break;
    case 3:
      comm.Broadcast(text);
      for (const std::string& part : comm.Gather(text)) StateWriter().Merge(part);
      break;
    case 4:
      store.Save(state);
      break;
    case 5:
      session.Finish();
      break;
    case 6:
      session.MeasureLinks();
      break;
    default:
      session.Leave();
      session.Join();
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  bool encoded = false;
  const auto answer = [&](InputWriter& w, int kind, int floats, int doubles, std::string_view text = "") {
    w.Byte(kMessage).Byte(kind).Byte(31).Byte(floats);
    const bool differs = encoded && kind == 16;
    if (differs) w.Byte(1);
    for (int i = 0; i < 5; ++i) w.Byte(31);
    w.Byte(0).Byte(7).Byte(0).Byte(0).Byte(31).Byte(31).Byte(31).Byte(31).Byte(0).Byte(0).Byte(doubles);
    w.Byte(0).Text(text);
    if (differs) w.Byte(0).Text(std::string(1, '\0'));
  };
  for (int run = 0; run < kWays; ++run) {
    const int pace = run % 3;
    encoded = run >= 3;
    for (int way = 0; way < 8; ++way) {
      InputWriter w;
      w.Byte(run).Byte(way).Byte(way).Byte(0);
      answer(w, 14, 0, 2);  // welcome of the first server
      answer(w, 14, 1, 0);  // and of the second
      for (int i = 0; i < 3; ++i) {
        answer(w, way == 2 || way == 3 ? 17 : way == 4 ? 2 : 16, i % 2, way < 2 && pace == 0 ? 1 : 2, "text");
        answer(w, 18, 3, 0, "for whom it waits");
        if (i == 1) w.Byte(kNothing).Byte(kLaterClosed).Text("full");
      }
      seeds.emplace_back("pace-" + std::to_string(run) + "-way-" + std::to_string(way), w.str());
    }
  }
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  using namespace trireme::fuzz;
  Input in(data, size);
  const RunTerms terms = FuzzTerms(in.Choice(kWays), 2);
  const auto codec = MakeCodecOrNone(terms.compress_params);
  const int ways[] = {in.Choice(8), in.Choice(8), in.Choice(8)};
  HostileTransport transport(in, codec.get());
  // No patience: a server that says nothing is lost at once.
  std::vector<ServerPlace> places(
      2, {.transport = &transport, .address = "server", .security = {}, .patience_s = 0.01});
  ServerSession session(places, terms, 1);
  session.Offer(std::vector<float>(terms.params, 0.5f));
  ServerCommunicator comm(session);
  const auto store =
      terms.pace == Pace::kSync ? MakeSyncServerStore(session, comm) : MakeAsyncServerStore(session, true);
  try {
    session.Join();
    for (const int way : ways) {
      try {
        Work(session, comm, *store, way);
      } catch (const FellBehind&) {
        session.Join();
      }
    }
  } catch (const Error&) {
  }
  session.Leave();
  return 0;
}
