// A parameter server and what clients may send: sequences of messages of several of them, who come, go,
// freeze and are cut off, while the clock jumps and the server starts again.
#include <map>
#include <memory>
#include <optional>

#include "messages.h"
#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/server/service/parameter_server.h"

namespace trireme::fuzz {
namespace {

constexpr int kClients = 4;
constexpr int kMostActions = 200;
enum Action { kHello, kState, kRequest, kRaw, kLeave, kCut, kFreeze, kThaw, kTime, kRestart, kActions };

struct Client {
  PeerId number = 0;
  std::unique_ptr<Stream> stream;
  std::uint64_t sequence = 1, version = 0, operation = 0, held = 0;  // as the server said last
};

class Stage {
 public:
  Stage(int way, int servers, bool files) : terms_(FuzzTerms(way, servers)) {
    if (files) folder_.emplace();
    Start();
  }

  void Act(Input& in) {
    const int action = in.Choice(kActions);
    Client& client = clients_[in.Choice(kClients)];
    const std::uint64_t id = 1 + static_cast<std::uint64_t>(&client - clients_.data());
    switch (action) {
      case kHello: {
        Open(client);
        Greeting greeting{.worker = AnyNumber(in, id), .terms = terms_};
        greeting.rank = static_cast<std::int64_t>(AnyNumber(in, 0) % 1'000'000'000) - 1;
        greeting.clock = AnyNumber(in, 0) % kMostUpdates;
        greeting.candidate = in.Choice(4) != 1;
        greeting.server = in.Choice(8) == 1 ? 1 : 0;
        greeting.continues = in.Choice(4) == 1;
        greeting.anew = static_cast<std::int64_t>(AnyNumber(in, 0) % 100) - 1;
        greeting.boundary = client.operation % kMostUpdates;
        const bool own_words = in.Choice(16) == 1;
        Send(client, MakeMessage({.kind = MessageKind::kHello, .worker = greeting.worker, .sequence = 1}, {},
                                 {}, own_words ? in.Text() : greeting.Encode()));
        break;
      }
      case kState:
        Send(client, AnyMessage(in, {.kind = MessageKind::kState, .worker = id}, Floats()));
        break;
      case kRequest: {
        Header header{.worker = id,
                      .sequence = ++client.sequence,
                      .version = client.version,
                      .number = client.operation};
        header.kind = static_cast<MessageKind>(in.Choice(20));
        header.held = client.held;
        const bool encoded = header.kind == MessageKind::kPush && terms_.compress != kNoCodec;
        const Outgoing plain = AnyMessage(in, header, encoded ? 0 : Floats());
        Send(client, encoded ? WithEncoded(in, plain, MakeCodec(terms_.compress)->bytes(Floats())) : plain);
        break;
      }
      case kRaw:
        Send(client, ToMessage(in.Text()));
        break;
      case kLeave:
        client.stream.reset();
        break;
      case kCut:
        transport_.Cut(client.number);
        break;
      case kFreeze:
        transport_.Freeze(client.number);
        break;
      case kThaw:
        transport_.Thaw(client.number);
        break;
      case kTime:
        now_ += std::chrono::milliseconds(100 * in.Byte());
        break;
      case kRestart:
        Start();
        break;
    }
    transport_.Pump(*listener_, *server_, now_);
    for (Client& each : clients_) ReadAnswers(each);
  }

 private:
  std::size_t Floats() const { return RangeOfServer(terms_, 0).size; }

  void Start() {
    server_.reset();
    listener_.reset();
    listener_ = transport_.Listen("server", {});
    server_ = std::make_unique<ParameterServer>(
        *listener_, ParameterServerOptions{.folder = folder_ ? folder_->path() / "state" : "",
                                           .audit = folder_.has_value()});
  }
  void Open(Client& client) {
    if (client.stream && !client.stream->closed()) return;
    client.stream = transport_.Connect("server", {});
    client.number = ++last_;
  }
  void Send(Client& client, const Outgoing& message) {
    Open(client);
    client.stream->Send(message, Deadline::min());
  }
  void ReadAnswers(Client& client) {
    if (!client.stream) return;
    while (Incoming* const message = client.stream->Receive(Deadline::min())) {
      const Header answer = ReadHeader(*message);
      client.version = answer.version;
      client.operation = answer.number;
      client.held = answer.held;
    }
  }

  RunTerms terms_;
  std::optional<ScratchFolder> folder_;
  MemoryTransport transport_;
  PeerId last_ = 0;
  Deadline now_ = Clock::now();
  std::unique_ptr<ServerTransport> listener_;
  std::unique_ptr<ParameterServer> server_;
  std::array<Client, kClients> clients_;
};

}  // namespace

// Two workers come, the first brings the parameters, and both make some requests.
std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const auto usual = [](InputWriter& w, int count) {
    for (int i = 0; i < count; ++i) w.Byte(31);
  };
  const auto message = [&](InputWriter& w, int floats, int doubles, std::string_view text = "",
                           int groups = 0, std::uint32_t flags = 0) {
    usual(w, 3);                                      // sequence, version, number
    usual(w, 2);                                      // steps, operation
    w.Byte(static_cast<int>(flags)).Byte(7).Byte(0);  // and learning rate, norm
    w.Byte(groups);
    for (int g = 0; g < groups; ++g) usual(w.Byte(31).Byte(31).Byte(7), 1);  // begin, end, rate, norm
    usual(w, 4);                           // leader, members, boundary, clock
    w.Byte(floats).Byte(0).Byte(doubles);  // how many, which
    w.Byte(0).Text(text);
  };
  const std::string ranks = InputWriter().Number(0, 4).Number(1, 4).str();
  for (int way = 0; way < kWays; ++way) {
    const int pace = way % 3;
    const bool encoded = way >= 3;
    for (int kind_of_run = 0; kind_of_run < 4; ++kind_of_run) {
      const bool files = kind_of_run % 2 == 1, two_servers = kind_of_run >= 2;
      InputWriter w;
      w.Byte(way).Byte(files).Byte(two_servers);
      const auto hello = [&](int client, int anew) {
        w.Byte(kHello).Byte(client);
        usual(w, 1);
        w.Byte(client % 2 + 1);  // rank + 1
        usual(w, 1);
        w.Byte(0).Byte(0).Byte(0).Byte(anew).Byte(0);
      };
      for (int client = 0; client < 2; ++client) {
        hello(client, 31);
        if (client == 0) message(w.Byte(kState).Byte(0), 0, 0);
      }
      const auto both = [&](MessageKind kind, int floats, int doubles = 0, std::string_view text = "",
                            int groups = 0, std::uint32_t flags = 0) {
        for (int client = 0; client < 2; ++client) {
          message(w.Byte(kRequest).Byte(client).Byte(static_cast<int>(kind)), floats, doubles, text, groups,
                  flags);
          if (encoded && kind == MessageKind::kPush) w.Byte(client).Text(std::string(1, '\0'));
        }
      };
      constexpr int kWithFloats = 0, kWithout = 4, kOneFloat = 6;  // of the sizes that AnyMessage knows
      for (int round = 0; round < 3; ++round) {
        both(MessageKind::kPush, kWithFloats, 0, "", two_servers ? 0 : 2 * round);
        if (pace == 0 && two_servers) {
          both(MessageKind::kAskNorms, kWithout, 0, ranks);
          both(MessageKind::kCommit, kOneFloat, 0, ranks);
        }
        if (round == 1 && files) w.Byte(kRestart).Byte(0);
      }
      both(MessageKind::kPull, kWithout);
      if (pace == 0) both(MessageKind::kCollect, kWithout, 2, "", 0, kBoundary);
      both(MessageKind::kFetch, kWithout);
      both(MessageKind::kAlive, kWithout, 0, InputWriter().Number(1, 8).Number(2, 8).str());
      both(MessageKind::kEcho, kWithout, 0, "echo");
      w.Byte(kTime).Byte(0).Byte(5);
      if (files) {  // both are given up; others begin anew
        both(MessageKind::kPush, kWithFloats);
        w.Byte(kTime).Byte(0).Byte(40);
        for (const int client : {2, 3}) hello(client, 1);
        w.Byte(kRestart).Byte(0);
      }
      both(MessageKind::kFinish, kWithout);
      // Then everything goes wrong.
      w.Byte(kCut)
          .Byte(0)
          .Byte(kFreeze)
          .Byte(1)
          .Byte(kTime)
          .Byte(0)
          .Byte(40)
          .Byte(kThaw)
          .Byte(1)
          .Byte(kLeave)
          .Byte(1);
      w.Byte(kRaw).Byte(2).Text("TRM4");
      seeds.emplace_back("pace-" + std::to_string(way) + "-run-" + std::to_string(kind_of_run), w.str());
    }
  }
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::fuzz;
  Input in(data, size);
  const int way = in.Choice(kWays);
  const bool files = in.Choice(8) == 1;
  Stage stage(way, 1 + in.Choice(2), files);
  for (int i = 0; i < kMostActions && !in.empty(); ++i) stage.Act(in);
  return 0;
}
