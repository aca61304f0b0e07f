// The communicator of a worker that is alone.
#pragma once

#include "trireme/comm/thread_communicator.h"

namespace trireme {

class GroupOfOne {
 public:
  GroupOfOne() = default;
  GroupOfOne(const GroupOfOne&) = delete;
  GroupOfOne& operator=(const GroupOfOne&) = delete;

  Communicator& comm() { return comm_; }

 private:
  ThreadGroup group_{1};
  ThreadCommunicator comm_{group_, 0};
};

}  // namespace trireme
