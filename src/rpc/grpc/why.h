// How a stream ended, in words for people.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

namespace trireme {

// The end that a server chose, with its reason. gRPC never uses this code by itself.
inline constexpr grpc::StatusCode kClosedByServer = grpc::StatusCode::FAILED_PRECONDITION;

// What Stream::why() says about `status` of a stream to `address`.
std::string Why(const std::string& address, const grpc::Status& status);

}  // namespace trireme
