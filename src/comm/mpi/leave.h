#pragma once

#include <mpi.h>

namespace trireme {

// Takes leave of MPI and of whoever started the job, with all others of the job. To be called when all that
// matters has been said and written, and everybody has heard everything. Gives back `shared`, if there is
// any. Never waits long.
void LeaveTogether(MPI_Win shared);

// Ends the job, because something went wrong here. Never waits long.
[[noreturn]] void LeaveInTrouble(int code);

}  // namespace trireme
