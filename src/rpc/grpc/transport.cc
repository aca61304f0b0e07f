// What the library libtrireme_grpc.so offers.
#include "trireme/rpc/transport.h"

#include "trireme/rpc/grpc/server.h"
#include "trireme/rpc/grpc/settings.h"
#include "trireme/rpc/grpc/stream.h"

namespace trireme {
namespace {

class GrpcTransport final : public Transport {
 public:
  GrpcTransport() { SetUpProcess(); }

  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                  const Limits& limits) override {
    return std::make_unique<GrpcStream>(address, security, limits);
  }
  std::unique_ptr<ServerTransport> Listen(const std::string& address, const Security& security,
                                          const Limits& limits) override {
    return std::make_unique<GrpcServer>(address, security, limits);
  }
};

}  // namespace
}  // namespace trireme

// Lives as long as the process: streams may be closed by whatever ends late.
extern "C" trireme::Transport* TriremeGrpcTransport() {
  static auto* transport = new trireme::GrpcTransport;
  return transport;
}
