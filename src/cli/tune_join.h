// How a search and the workers that join it find each other: by address, by the folder of the study, or through MPI.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/cli/security_flags.h"
#include "trireme/comm/processes.h"
#include "trireme/tune/join.h"
#include "trireme/tune/tuner.h"

namespace trireme {

struct JoinFlags {
  std::string listen, join;
  SecurityFlags security;

  void AddTo(CommandLine& command);
};

// Lets workers join a search as long as this object lives: those of --join, and the other processes that mpirun started (null:
// there are none), of which this is the first. When they have found it, the processes take leave of MPI.
class JoinPlace {
 public:
  // Tells `options` how, which must not outlive this object. Throws Error.
  JoinPlace(const JoinFlags& flags, Processes* processes, TuneOptions& options);
  ~JoinPlace();
  JoinPlace(const JoinPlace&) = delete;
  JoinPlace& operator=(const JoinPlace&) = delete;

 private:
  void Announce(const std::string& address, const std::string& token);

  const std::filesystem::path file_;  // with the address, beside the study; empty: none
  Processes* const processes_;
  std::string written_;  // what this one has put there
};

// `options` without an address: runs trials for the search at --join. Returns the exit code.
int RunJoin(const JoinFlags& flags, JoinOptions options);
// The same for a process that mpirun started beside the first one. What fails is said, and ends nobody else.
int RunAlong(const JoinFlags& flags, Processes& processes, JoinOptions options);

}  // namespace trireme
