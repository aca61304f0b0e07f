// The other process of tests that kill it.
//   rpc_peer server ADDRESS    sends back what it gets
//   rpc_peer client ADDRESS    sends large messages and reads nothing
#include "trireme/rpc/test_util.h"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 3) return 2;
  const std::string role = argv[1], address = argv[2];
  const pid_t parent = getppid();
  Transport& transport = address.starts_with("shm:") ? SharedMemoryStreams() : Grpc();
  if (role == "server") {
    EchoServer server(transport, address);
    while (getppid() == parent) std::this_thread::sleep_for(100ms);
  } else {
    const auto stream = transport.Connect(address, {});
    const Outgoing message = Message(Pattern(20'000'000, 1));
    while (getppid() == parent && !stream->closed()) stream->Send(message, In(1s));
  }
}
