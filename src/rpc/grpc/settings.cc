#include "trireme/rpc/grpc/settings.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace trireme {
namespace {

struct Setting {
  const char* name;
  int value;
};

// Measured with bench/rpc_bench and by processor time per message, two processes on one machine:
// - A window of 8 MB from the start instead of the estimated one, and frames of 1 MB instead of 16 KB, save a third
//   of the processor time of a 1 MB message over TCP. The estimate starts small, pings on the way, and at times stays
//   small for long. A Unix socket holds 208 KB, which outweighs all of this.
// - Larger read chunks and write buffers, and sharing one connection between streams, made no difference.
// - GRPC_POLL_STRATEGY=poll saves a fifth when several threads wait on streams of their own, since none wakes up for
//   another's. The default stays: with it, a thread that waits for one server moves bytes to and from all.
std::vector<Setting> Common() {
  return {
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(sizeof(std::uint64_t) + kPiece)},
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
      // Parameters are noise to a compressor.
      {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
      {GRPC_ARG_ENABLE_CHANNELZ, 0},
      {GRPC_ARG_ENABLE_CENSUS, 0},
  };
}

// Only what says that gRPC itself is broken, just before it aborts.
void LogNothingButBugs(gpr_log_func_args* args) {
  if (std::strstr(args->message, "assertion failed") == nullptr) return;
  std::fprintf(stderr, "trireme: internal error in gRPC at %s:%d: %s\n", args->file, args->line,
               args->message);
}

}  // namespace

grpc::ChannelArguments ClientSettings() {
  grpc::ChannelArguments settings;
  for (const Setting& setting : Common()) settings.SetInt(setting.name, setting.value);
  for (const Setting& setting : {
           Setting{GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
           // The layer above knows what may be sent twice.
           Setting{GRPC_ARG_ENABLE_RETRIES, 0},
           // A connection of its own for each stream: none waits behind another's messages.
           Setting{GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
           // Proxies of the environment are for the web.
           Setting{GRPC_ARG_ENABLE_HTTP_PROXY, 0},
           Setting{GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1},
           // A server that comes back is found at once; an attempt that hangs is given up after two seconds.
           Setting{GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50},
           Setting{GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500},
           Setting{GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000},
           Setting{GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500},
       }) {
    settings.SetInt(setting.name, setting.value);
  }
  return settings;
}

void ApplyServerSettings(grpc::ServerBuilder& builder) {
  for (const Setting& setting : Common()) builder.AddChannelArgument(setting.name, setting.value);
  for (const Setting& setting : {
           // Ours open one. A stranger cannot fill more than one window and one piece per connection.
           Setting{GRPC_ARG_MAX_CONCURRENT_STREAMS, 1},
           Setting{GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 2 << 20},
           // A connection that does not get as far as HTTP/2.
           Setting{GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000},
           // One that does, and opens no stream.
           Setting{GRPC_ARG_MAX_CONNECTION_IDLE_MS, 10'000},
           // Leases tell quickly who is gone; this only frees the connections of machines that vanished.
           Setting{GRPC_ARG_KEEPALIVE_TIME_MS, 300'000},
           Setting{GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60'000},
       }) {
    builder.AddChannelArgument(setting.name, setting.value);
  }
}

void SetUpProcess() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(LogNothingButBugs);
  grpc_init();
}

gpr_timespec ToTimespec(Deadline deadline) {
  if (deadline == Deadline::max()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const auto since = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return {.tv_sec = seconds.count(),
          .tv_nsec = static_cast<int>(std::chrono::nanoseconds(since - seconds).count()),
          .clock_type = GPR_CLOCK_MONOTONIC};
}

}  // namespace trireme
