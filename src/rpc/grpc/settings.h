// What both ends tell gRPC, and small conversions they share.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "rpc/transport.h"

namespace trireme {

inline constexpr char kMethod[] = "/trireme.Parameters/Exchange";

grpc::ChannelArguments ClientSettings(const Limits& limits);
void ApplyServerSettings(const Limits& limits, grpc::ServerBuilder& builder);

// Keeps gRPC from writing to the terminal, unless GRPC_VERBOSITY asks for it, and keeps its threads, which
// would end with the last stream and start again with the next. Before anything else of gRPC is used.
void SetUpProcess();

// As many connections as the system lets the process have. A server of gRPC 1.51 that once finds no
// descriptor for a new connection never accepts another.
void AllowManyConnections();

gpr_timespec ToTimespec(Deadline deadline);

}  // namespace trireme
