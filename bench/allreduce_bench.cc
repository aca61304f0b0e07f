// All-reduction between processes: ours against MPI_Allreduce of the same library, alternated in one run, and
// what the link between the first two processes can do at all. Start it by mpirun; bench/run-allreduce does.
//
// Ours adds in the order of comm/communicator.h, so that the bits do not depend on the number of workers;
// MPI_Allreduce adds in any.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/base/system.h"
#include "trireme/comm/processes.h"

namespace trireme {
namespace {

// Seconds of `calls` calls, as the slowest process has them.
double Time(int calls, const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun_s = MonotonicSeconds();
  for (int i = 0; i < calls; ++i) call();
  double own_s = (MonotonicSeconds() - begun_s) / calls, slowest_s = 0;
  MPI_Allreduce(&own_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest_s;
}

struct Case {
  const char* name;
  std::size_t floats;
  int calls, rounds;
};

void Compare(Processes& processes, const Case& c) {
  std::vector<float> values(c.floats, 0.0f), sum(c.floats, 0.0f);
  const auto ours = [&] { processes.AllReduceSum(std::span<float>(values)); };
  // In place, as ours.
  const auto theirs = [&] {
    MPI_Allreduce(MPI_IN_PLACE, sum.data(), static_cast<int>(sum.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  Time(1 + c.calls / 4, ours);
  Time(1 + c.calls / 4, theirs);
  std::vector<double> ours_s, theirs_s, ratios;
  for (int round = 0; round < c.rounds; ++round) {
    ours_s.push_back(Time(c.calls, ours));
    theirs_s.push_back(Time(c.calls, theirs));
    ratios.push_back(theirs_s.back() / ours_s.back());
  }
  if (processes.rank() != 0) return;
  const double bytes = 4.0 * static_cast<double>(c.floats);
  fmt::print("  {:>6}  ours {:>9.1f} us  MPI_Allreduce {:>9.1f} us  ratio {:>5.2f}  ({:.2f} GB/s)\n", c.name,
             1e6 * Median(ours_s), 1e6 * Median(theirs_s), Median(ratios), 1e-9 * bytes / Median(ours_s));
}

// Half a round trip of an empty message, and bytes per second of a large one, between processes 0 and 1.
void MeasureLink(int rank) {
  const auto pass = [&](std::vector<char>& buffer, int bytes) {
    if (rank == 0) {
      MPI_Send(buffer.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(buffer.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
      MPI_Recv(buffer.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffer.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
  };
  constexpr int kLarge = 4 << 20;
  std::vector<char> buffer(kLarge);
  std::vector<double> empty_s, large_s;
  for (int round = 0; round < 20; ++round) {
    empty_s.push_back(Time(200, [&] { pass(buffer, 0); }) / 2);
    large_s.push_back(Time(3, [&] { pass(buffer, kLarge); }) / 2);
  }
  if (rank != 0) return;
  fmt::print("  link    latency {:.2f} us, bandwidth {:.2f} GB/s (messages of MPI)\n", 1e6 * Median(empty_s),
             1e-9 * kLarge / Median(large_s));
}

}  // namespace
}  // namespace trireme

int main() {
  using namespace trireme;
  try {
    Processes* processes = ConnectProcesses();
    if (processes == nullptr) Fail("start this with mpirun");
    if (processes->rank() == 0) fmt::print("{} processes\n", processes->size());
    MeasureLink(processes->rank());
    for (const Case& c :
         {Case{"10 KB", 2'500, 300, 31}, Case{"1 MB", 250'000, 20, 31}, Case{"64 MB", 16'000'000, 1, 9}}) {
      Compare(*processes, c);
    }
    std::fflush(stdout);
    LeaveProcesses(0);
  } catch (const Error& error) {
    fmt::print(stderr, "allreduce_bench: {}\n", error.what());
    LeaveProcesses(1);
    return 1;
  }
}
