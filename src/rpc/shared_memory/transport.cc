#include "trireme/rpc/transport.h"

#include "trireme/base/error.h"
#include "trireme/rpc/shared_memory/server.h"
#include "trireme/rpc/shared_memory/stream.h"
#include "trireme/rpc/token.h"

namespace trireme {
namespace {

void CheckSecurity(const Security& security) {
  CheckToken(security.token);
  if (security.tls || !security.certificate.empty() || !security.private_key.empty() ||
      !security.authority.empty()) {
    Fail(
        "certificates and keys are for what leaves the machine, and shm: does not: leave them out, or use "
        "host:port");
  }
}

class SharedMemoryTransport final : public Transport {
 public:
  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                  const Limits& limits) override {
    CheckSecurity(security);
    return std::make_unique<SharedMemoryStream>(address, security, limits);
  }
  std::unique_ptr<ServerTransport> Listen(const std::string& address, const Security& security,
                                          const Limits& limits) override {
    CheckSecurity(security);
    return std::make_unique<SharedMemoryServer>(address, security, limits);
  }
};

}  // namespace

Transport& SharedMemoryStreams() {
  static SharedMemoryTransport transport;
  return transport;
}

Transport& TransportFor(const std::string& address) {
  return address.starts_with("shm:") ? SharedMemoryStreams() : LoadGrpc();
}

}  // namespace trireme
