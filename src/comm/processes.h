// The processes that mpirun or srun started together. They find each other through MPI, whose library is
// loaded only then.
//
// How a process learns of the others: mpirun and srun leave variables in the environment. Of Open MPI it is
// OMPI_COMM_WORLD_SIZE or PMIX_RANK, of MPICH and its relatives PMI_SIZE. TRIREME_MPI=openmpi|mpich|mpi names
// the library instead, and TRIREME_MPI=off makes every process a run of its own.
//
// A process that waits longer than TRIREME_MPI_TIMEOUT seconds (300) for another throws Error, which says who
// waited for whom in which operation.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/comm/peer_communicator.h"

namespace trireme {

// The ranks are processes. All calls but Abort() from the thread that connected. Abort() makes the calls of
// this process fail; the other processes learn of it when it leaves.
class Processes : public PeerCommunicator {
 public:
  // Processors for each process, the same number everywhere: processes of one host share what it has.
  virtual int processors() const = 0;
  // Takes leave for good. With 0 it waits until all have done so; any other code ends all processes at once.
  virtual void Leave(int code) = 0;
};

// What the environment says: one of several processes, and the MPI that started them.
struct Launch {
  std::string kind;  // openmpi, mpich or mpi (any other)
  int rank = 0;
};
// Nothing when this process is alone. Throws Error for variables that make no sense.
std::optional<Launch> DetectLaunch(const std::function<const char*(const char*)>& environment);
// The same for this process.
std::optional<Launch> DetectLaunch();

// Connects to the other processes at the first call, which blocks until all have made it; null when this one
// is alone. From the main thread. Throws Error.
Processes* ConnectProcesses();

// For main(), at the end: a process that fails says why between the two. The same mistake makes all processes
// fail at once; the others give the first one a moment to say so for all.
void LetFirstProcessSpeak();
// Afterwards this process is alone, as if it had never been connected.
void LeaveProcesses(int code);

// What a library of an MPI exports, as "TriremeConnectMpi".
using ConnectMpi = Processes* (*)(double timeout_s);

}  // namespace trireme
