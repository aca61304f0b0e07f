// A processor for one trial at a time, whatever other searches run on this machine: each takes one that no other has.
#pragma once

namespace trireme {

class ProcessorClaim {
 public:
  // One of those that this process may use and nobody has claimed, until this object or the process ends.
  ProcessorClaim();
  ~ProcessorClaim();
  ProcessorClaim(const ProcessorClaim&) = delete;
  ProcessorClaim& operator=(const ProcessorClaim&) = delete;

  // -1: all are taken.
  int processor() const { return processor_; }

 private:
  int processor_ = -1;
  int lock_ = -1;
};

}  // namespace trireme
