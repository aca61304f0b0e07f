// Who may talk to whom: TLS credentials and the shared token.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "trireme/rpc/transport.h"

namespace trireme {

// The metadata that carries the token.
inline constexpr char kTokenKey[] = "authorization";

// Both throw Error for keys, certificates or tokens that cannot be used, and say which.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const Security& security);
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const Security& security);

}  // namespace trireme
