#include "network.h"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace trireme::testing {
namespace {

constexpr const char* kInterface = "eth0";  // of a host

std::string PortName(int number) { return "port" + std::to_string(number); }

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

// Makes the kernel finish frames before it hands them to the interface: cut to size, with their checksums. It
// would leave both to the network card, which here is the wire.
void LeaveNothingToTheCard(const char* interface) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const std::uint32_t command : {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO}) {
    ethtool_value value{command, 0};
    ifreq request{};
    std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (::ioctl(socket, SIOCETHTOOL, &request) != 0) Fail(std::string("offloads of ") + interface);
  }
  ::close(socket);
}

// Waits for the kernel to notice, within a second or so, that there is somebody at the other end: until then
// the interface sends nothing.
void WaitUntilRunning(const std::string& interface) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  bool running = false;
  for (int i = 0; i < 10'000 && !running; ++i) {
    if (::ioctl(socket, SIOCGIFFLAGS, &request) != 0) break;
    running = (request.ifr_flags & IFF_RUNNING) != 0;
    if (!running) ::usleep(1000);
  }
  ::close(socket);
  if (!running) throw std::runtime_error(interface + " does not come up");
}

// A socket that sees the frames that come in through an interface.
int OpenPort(const std::string& interface) {
  const int socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  if (socket < 0) Fail("packet socket");
  const int on = 1, buffer = 8 << 20;
  // Larger than the limit for everybody, if we may; otherwise a busy machine loses frames sooner.
  if (::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (::setsockopt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    Fail("packet socket of " + interface);
  }
  return socket;
}

}  // namespace

Network::Network(int hosts, const Cable& cable) {
  std::vector<int> ports;
  for (int i = 1; i <= hosts; ++i) {
    hosts_.push_back(std::make_unique<Namespace>("node" + std::to_string(i)));
    switch_.Run({"ip", "link", "add", PortName(i), "type", "veth", "peer", "name", kInterface, "netns",
                 std::to_string(host(i).pid())});
    switch_.Run({"ip", "link", "set", PortName(i), "up"});
    switch_.Call([&] { ports.push_back(OpenPort(PortName(i))); });
    host(i).Call([] { LeaveNothingToTheCard(kInterface); });
    host(i).Run({"ip", "link", "set", "lo", "up"});
    host(i).Run({"ip", "address", "add", Address(i) + "/24", "dev", kInterface});
    host(i).Run({"ip", "link", "set", kInterface, "up"});
  }
  wire_ = std::make_unique<Wire>(ports, cable);
  for (int i = 1; i <= hosts; ++i) WaitUntilUp(i);
}

Network::~Network() = default;

std::unique_ptr<Process> Network::Start(int number, const std::string& program,
                                        const std::vector<std::string>& args) const {
  std::vector<std::string> words = host(number).Enter();
  words.push_back(program);
  words.insert(words.end(), args.begin(), args.end());
  return std::make_unique<Process>(words[0], std::vector<std::string>(words.begin() + 1, words.end()));
}

void Network::WriteShell(const std::string& path) const {
  std::ofstream out(path);
  out << "#!/bin/sh\n"
         "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
         "case $1 in\n";
  for (int i = 1; i <= static_cast<int>(hosts_.size()); ++i)
    out << "  " << Address(i) << ") pid=" << host(i).pid() << " ;;\n";
  out << "  *) echo \"$1: no such host\" >&2; exit 255 ;;\n"
         "esac\n"
         "shift\n"
         "exec env -i HOME=\"$HOME\" PATH=\"$PATH\" nsenter --target $pid --net --uts --mount -- sh -c "
         "\"$*\"\n";
  out.close();
  if (!out || ::chmod(path.c_str(), 0755) != 0) Fail(path);
}

void Network::Cut(int number) const { switch_.Run({"ip", "link", "set", PortName(number), "down"}); }

void Network::Mend(int number) const {
  switch_.Run({"ip", "link", "set", PortName(number), "up"});
  WaitUntilUp(number);
  // Whoever was looking for the other in vain would be told so within the next seconds, and with it whoever
  // tries now.
  for (const auto& host : hosts_) host->Run({"ip", "neighbour", "flush", "dev", kInterface});
}

void Network::WaitUntilUp(int number) const {
  switch_.Call([&] { WaitUntilRunning(PortName(number)); });
  host(number).Call([] { WaitUntilRunning(kInterface); });
}

}  // namespace trireme::testing
