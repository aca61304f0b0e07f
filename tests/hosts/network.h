// A small network of real hosts: network namespaces with names and addresses of their own, each with a cable
// to a switch. Cables have latency and bandwidth, and can be cut.
//
//   node1 10.77.0.1 ---+
//   node2 10.77.0.2 ---+--- switch (wire.h)
//   node3 10.77.0.3 ---+
//   node4 10.77.0.4 ---+
//
// All hosts see the same files. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "namespaces.h"
#include "process.h"
#include "wire.h"

namespace trireme::testing {

class Network {
 public:
  // Hosts are counted from 1. Throws when the network cannot be made, though WhyNoNamespaces() said it can.
  Network(int hosts, const Cable& cable);
  ~Network();

  const Namespace& host(int number) const { return *hosts_.at(static_cast<std::size_t>(number - 1)); }
  static std::string Address(int number) { return "10.77.0." + std::to_string(number); }

  // Starts a program on a host; signals reach the program itself.
  std::unique_ptr<Process> Start(int number, const std::string& program,
                                 const std::vector<std::string>& args) const;
  // Writes a program that does what ssh does: `shell [options] ADDRESS WORDS...` runs the words on the host
  // with that address, with an environment of its own.
  void WriteShell(const std::string& path) const;

  // Takes the switch's end of the cable down, and up: nothing passes in between, and nobody is told.
  void Cut(int number) const;
  void Mend(int number) const;

  // What the hosts have sent each other.
  std::uint64_t passed_bytes() const { return wire_->passed_bytes(); }

 private:
  void WaitUntilUp(int number) const;

  Namespace switch_{"switch"};
  std::vector<std::unique_ptr<Namespace>> hosts_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace trireme::testing
