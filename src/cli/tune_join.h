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

// Lets workers join: those of --join, and the other processes that mpirun started (null: there are none), of which this is the
// first. Throws Error.
void LetJoin(const JoinFlags& flags, Processes* processes, TuneOptions& options);
// At the end.
void EndJoining(const TuneOptions& options);

// `options` without an address: runs trials for the search at --join. Returns the exit code.
int RunJoin(const JoinFlags& flags, JoinOptions options);
// The same for a process that mpirun started beside the first one. What fails is said, and ends nobody else.
int RunAlong(Processes& processes, JoinOptions options);

}  // namespace trireme
