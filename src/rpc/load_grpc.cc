#include "trireme/base/plugin.h"
#include "trireme/rpc/transport.h"

namespace trireme {

Transport& LoadGrpc() {
  static Transport& transport = *reinterpret_cast<Transport* (*)()>(
      PluginSymbol("libtrireme_grpc.so", "TriremeGrpcTransport", "gRPC"))();
  return transport;
}

}  // namespace trireme
