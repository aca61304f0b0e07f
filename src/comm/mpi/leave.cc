#include "trireme/comm/mpi/leave.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace trireme {
namespace {

// MPI waits for mpirun for ever when that is cut off or gone: a process that has not left after a while goes
// without leave.
void EndAnyway(int code) {
  constexpr unsigned kSeconds = 3;
  static int exit_code;
  exit_code = code;
  std::signal(SIGALRM, [](int) { _exit(exit_code); });
  alarm(kSeconds);
}

// MPICH 4.0 over UCX and TCP hangs in MPI_Finalize in about half of all runs, also of a program that does
// nothing but an MPI_Barrier before: a process waits for another to answer that waits for all in a barrier of
// the launcher. What the launcher wants to hear before a process ends is a line on the descriptor PMI_FD, and
// it is enough. It answers, and cannot bear that nobody listens.
bool ToldLauncher() {
#ifdef MPICH_VERSION
  constexpr int kMillisecondsToAnswer = 1000;
  constexpr std::string_view kGoodbye = "cmd=finalize\n", kAnswer = "cmd=finalize_ack";
  const char* set = std::getenv("PMI_FD");
  if (set == nullptr) return false;
  const int launcher = std::atoi(set);
  if (write(launcher, kGoodbye.data(), kGoodbye.size()) != static_cast<ssize_t>(kGoodbye.size()))
    return false;
  pollfd answer{.fd = launcher, .events = POLLIN, .revents = 0};
  std::string heard;
  char some[64];
  while (poll(&answer, 1, kMillisecondsToAnswer) == 1) {
    const ssize_t length = read(launcher, some, sizeof(some));
    if (length <= 0) break;
    heard.append(some, static_cast<std::size_t>(length));
    if (heard.find(kAnswer) != std::string::npos && heard.back() == '\n') return true;
  }
#endif
  return false;
}

}  // namespace

void LeaveTogether(MPI_Win shared) {
  EndAnyway(0);
  if (shared != MPI_WIN_NULL) {
    MPI_Win_unlock_all(shared);
    MPI_Win_free(&shared);
  }
  if (!ToldLauncher()) MPI_Finalize();
  alarm(0);
}

void LeaveInTrouble(int code) {
  EndAnyway(code);
  // What the process has just said is on its way through mpirun, which drops it when it ends the job at once.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();  // not reached
}

}  // namespace trireme
