// The switch of a test network, and its cables: a thread that passes frames between network interfaces, each
// as late as the cables say. It does in a process what the kernel's netem does, so it needs nothing of the
// kernel but packet sockets.
//
//   host a --- cable ---> switch --- cable ---> host b       (two lines, each with its latency and bandwidth)
//
// A frame for an address that was seen goes to the port where it was seen, any other to all ports. The
// interfaces must not leave work to the network card: frames arrive whole, and with their checksums.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "line.h"

namespace trireme::testing {

class Wire {
 public:
  // `ports`: packet sockets, each bound to one interface, which it closes.
  Wire(const std::vector<int>& ports, const Cable& cable);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Bytes of frames that reached the end of their second cable.
  std::uint64_t passed_bytes() const { return passed_bytes_; }

 private:
  using Address = std::array<std::uint8_t, 6>;
  using Frame = std::vector<std::uint8_t>;

  // Frames on one line, in order of arrival.
  struct Lane {
    explicit Lane(const Cable& cable) : line(cable) {}
    Line line;
    std::deque<std::pair<Time, Frame>> frames;
  };
  struct Port {
    Port(int socket, const Cable& cable) : socket(socket), up(cable), down(cable) {}
    int socket;
    Lane up, down;  // from the host to the switch, and back
  };

  void Run();
  void Receive(Port& port, Time now);
  void Enter(Lane& lane, Time now, Frame frame);
  // Moves what is due by `now`, and says when the next frame is.
  std::optional<Time> Move(Time now);
  void Switch(std::size_t from, Time now, Frame frame);

  // Of the thread alone.
  std::vector<Port> ports_;
  std::map<Address, std::size_t> seen_;  // which host is at which port

  std::atomic<std::uint64_t> passed_bytes_{0};
  int wake_;  // an eventfd; readable when the thread shall end
  std::thread thread_;
};

}  // namespace trireme::testing
