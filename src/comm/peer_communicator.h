// A communicator whose workers can also send to one another and form smaller groups: for those that compute one
// network together.
#pragma once

#include <memory>
#include <span>

#include "trireme/comm/communicator.h"

namespace trireme {

class PeerCommunicator : public Communicator {
 public:
  // To rank `to`, another one, which receives as many values. Does not wait for that: the values are copied. What one
  // rank sends to another arrives in order, beside what collective operations exchange.
  virtual void Send(int to, std::span<const float> values) = 0;
  // The next values that rank `from` sends here. Blocks; time spent waiting counts as idle.
  virtual void Receive(int from, std::span<float> values) = 0;

  // All call it. Those with the same colour, which is not negative, become a group, in the order of their ranks. This
  // communicator outlives it, and Abort() of this one is one of the group, too.
  virtual std::unique_ptr<PeerCommunicator> Split(int colour) = 0;
};

}  // namespace trireme
