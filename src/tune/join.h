// A worker of a search that runs elsewhere: runs its trials, in processes of this host, as long as there are some.
// joined_trials.h is the other side, and has what they say to each other.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "trireme/rpc/transport.h"

namespace trireme {

struct JoinOptions {
  Transport* transport = nullptr;
  std::string place = {};  // where the search is, as people say it
  // Its address, asked before each connection; empty: not known yet.
  std::function<std::string()> find = {};
  Security security = {};
  int parallel = 1;    // trials at a time
  double wait_s = 60;  // for a search that does not answer, at the beginning and in between
  std::vector<std::string> command = {};  // of a trial process: TrialProcess
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for people
};

// Blocks until the search is over (true), or `stop` (false); what is running then is given back. Throws Error: the search refuses
// this worker, is gone for too long, or its environment cannot be made here.
bool JoinSearch(const JoinOptions& options);

}  // namespace trireme
