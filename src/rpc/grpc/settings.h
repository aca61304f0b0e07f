// What both ends tell gRPC, and small conversions they share.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "trireme/rpc/grpc/bytes.h"

namespace trireme {

inline constexpr char kMethod[] = "/trireme.Parameters/Pieces";

grpc::ChannelArguments ClientSettings();
void ApplyServerSettings(grpc::ServerBuilder& builder);

// Keeps gRPC from writing to the terminal, unless GRPC_VERBOSITY asks for it, and keeps its threads, which
// would end with the last stream and start again with the next. Before anything else of gRPC is used.
void SetUpProcess();

gpr_timespec ToTimespec(Deadline deadline);

}  // namespace trireme
