// What our streams cost beside gRPC itself, between two processes: round trips of 20 KB each way against an
// empty call, and bandwidth of 1 MB each way against a plain stream of gRPC's blocking interface, which
// copies nothing. Ours reads each message into memory and sends it from there, at both ends.
//
//   rpc_bench [seconds per figure, default 2]
//
// Bars of the parameter server that is built on this: 20 KB in at most 2 empty calls, 1 MB at 70 % or more.
#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/method_handler.h>
#include <grpcpp/support/sync_stream.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "timing.h"
#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/rpc/transport.h"

namespace trireme {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

constexpr char kCall[] = "/bare/Call", kEcho[] = "/bare/Echo";
constexpr int kLargest = 256 << 20;  // message

// --------------------------------------------------------------------------------------- gRPC by itself

class BareService final : public grpc::Service {
 public:
  BareService() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kCall, RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<BareService, ByteBuffer, ByteBuffer>(
            [](BareService*, grpc::ServerContext*, const ByteBuffer* in, ByteBuffer* out) {
              *out = *in;
              return grpc::Status::OK;
            },
            this)));
    AddMethod(new grpc::internal::RpcServiceMethod(
        kEcho, RpcMethod::BIDI_STREAMING,
        new grpc::internal::BidiStreamingHandler<BareService, ByteBuffer, ByteBuffer>(
            [](BareService*, grpc::ServerContext*, grpc::ServerReaderWriter<ByteBuffer, ByteBuffer>* stream) {
              ByteBuffer message;
              while (stream->Read(&message)) stream->Write(message);
              return grpc::Status::OK;
            },
            this)));
  }
};

class BareClient {
 public:
  explicit BareClient(const std::string& address) {
    grpc::ChannelArguments settings;
    settings.SetMaxReceiveMessageSize(kLargest);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), settings);
    // The server may still be starting.
    channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
    stream_.reset(grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::Create(
        channel_.get(), RpcMethod(kEcho, RpcMethod::BIDI_STREAMING), &context_));
  }
  ~BareClient() {
    context_.TryCancel();
    stream_->Finish();
  }

  void EmptyCall() {
    const grpc::Slice empty;
    const ByteBuffer request(&empty, 1);
    ByteBuffer answer;
    grpc::ClientContext context;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<ByteBuffer, ByteBuffer, ByteBuffer, ByteBuffer>(
            channel_.get(), RpcMethod(kCall, RpcMethod::NORMAL_RPC), &context, request, &answer);
    if (!status.ok()) Fail("empty call: {}", status.error_message());
  }

  void Echo(const AlignedBuffer<std::byte>& bytes) {
    const grpc::Slice slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE);
    ByteBuffer answer;
    if (!stream_->Write(ByteBuffer(&slice, 1)) || !stream_->Read(&answer)) Fail("the bare stream broke");
    TRIREME_CHECK(answer.Length() == bytes.size());
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> stream_;
};

// ---------------------------------------------------------------------------------------- our transport

class EchoHandler final : public ServerTransport::Handler {
 public:
  explicit EchoHandler(ServerTransport& server) : server_(server) {}
  void OnOpen(PeerId peer, const std::string&) override { server_.Allow(peer, SIZE_MAX); }
  void OnMessage(PeerId peer, Incoming& message) override {
    // A server keeps its answers; here it needs a new buffer only when the size changes.
    if (!answer_ || answer_->size() != message.size() || answer_.use_count() > 1) {
      answer_ = std::make_shared<AlignedBuffer<std::byte>>(message.size());
    }
    message.Read(answer_->span());
    server_.Send(peer, answer_);
  }
  void OnClose(PeerId) override {}
  Deadline OnTime(Deadline now) override { return now + std::chrono::hours(1); }

 private:
  ServerTransport& server_;
  std::shared_ptr<AlignedBuffer<std::byte>> answer_;
};

class OurClient {
 public:
  explicit OurClient(const std::string& address) : stream_(LoadGrpc().Connect(address, {})) {}

  void Echo(const Outgoing& message, AlignedBuffer<std::byte>& answer) {
    const Deadline deadline = Clock::now() + std::chrono::seconds(10);
    Incoming* incoming = stream_->Send(message, deadline) ? stream_->Receive(deadline) : nullptr;
    if (incoming == nullptr) Fail("our stream broke: {}", stream_->why());
    incoming->Read(answer.span());
  }

 private:
  std::unique_ptr<Stream> stream_;
};

// ----------------------------------------------------------------------------------------- the two processes

// Each kind of server has a process of its own, or they would wait for each other's sockets, and ends with
// this one.
void ServeBare(const std::string& address) {
  BareService service;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kLargest);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) Fail("cannot listen on {}", address);
  server->Wait();
}

void ServeOurs(const std::string& address) {
  const std::unique_ptr<ServerTransport> server = LoadGrpc().Listen(address, {});
  EchoHandler handler(*server);
  server->Run(handler, [] { return false; });
}

// A server in another process, as long as this object lives.
class Child {
 public:
  Child(const char* role, const std::string& address) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "rpc_bench", role, address.c_str(), nullptr);
    _exit(127);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

// Seconds of one call of each of `sides`, medians over rounds in which each has its turn.
std::vector<double> Compare(double seconds, const std::vector<std::function<void()>>& sides) {
  std::vector<std::vector<double>> times(sides.size());
  const double end = Now() + seconds * static_cast<double>(sides.size());
  while (Now() < end) {
    for (std::size_t side = 0; side < sides.size(); ++side) {
      for (int i = 0; i < 20; ++i) {
        const double start = Now();
        sides[side]();
        times[side].push_back(Now() - start);
      }
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& side : times) medians.push_back(Median(std::move(side)));
  return medians;
}

void Measure(const char* name, const std::string& bare_address, const std::string& our_address,
             double seconds) {
  BareClient bare(bare_address);
  OurClient ours(our_address);
  const auto buffer = [](std::size_t size) { return std::make_shared<AlignedBuffer<std::byte>>(size); };

  const auto small = buffer(20'000), small_answer = buffer(20'000);
  const auto large = buffer(1'000'000), large_answer = buffer(1'000'000);
  for (int i = 0; i < 50; ++i) {
    bare.EmptyCall();
    bare.Echo(*large);
    ours.Echo(large, *large_answer);
  }
  const std::vector<double> trip = Compare(
      seconds,
      {[&] { bare.EmptyCall(); }, [&] { ours.Echo(small, *small_answer); }, [&] { bare.Echo(*small); }});
  fmt::print(
      "{:<5} 20 KB each way: {:.0f} us, {:.2f} times an empty call ({:.0f} us); bare stream {:.0f} us\n",
      name, trip[1] * 1e6, trip[1] / trip[0], trip[0] * 1e6, trip[2] * 1e6);
  const std::vector<double> bulk =
      Compare(seconds, {[&] { bare.Echo(*large); }, [&] { ours.Echo(large, *large_answer); }});
  fmt::print("{:<5} 1 MB each way: {:.0f} MB/s, {:.2f} of a bare stream ({:.0f} MB/s)\n", name, 2 / bulk[1],
             bulk[0] / bulk[1], 2 / bulk[0]);
}

void Run(double seconds) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path().string();
  const int port = 20'000 + getpid() % 20'000;
  for (const bool unix_sockets : {false, true}) {
    const std::string bare = unix_sockets ? "unix:" + folder + "/bare" : fmt::format("127.0.0.1:{}", port);
    const std::string ours =
        unix_sockets ? "unix:" + folder + "/ours" : fmt::format("127.0.0.1:{}", port + 1);
    const Child bare_server("bare", bare), our_server("ours", ours);
    Measure(unix_sockets ? "Unix" : "TCP", bare, ours, seconds);
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 0);
  const std::string role = argc == 3 ? argv[1] : "";
  try {
    if (role == "bare") ServeBare(argv[2]);
    if (role == "ours") ServeOurs(argv[2]);
    Run(argc > 1 ? std::atof(argv[1]) : 2);
  } catch (const Error& error) {
    fmt::print(stderr, "rpc_bench: {}\n", error.what());
    return 1;
  }
}
