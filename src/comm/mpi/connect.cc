// How the processes of a job come together through MPI.
//
// Processes of one host exchange through shared memory, which MPI arranges, and hosts by messages between the
// first processes of each. That needs neighbours in rank to be neighbours in place: hosts with the same power
// of two of consecutive ranks, which is what mpirun and srun do unless told otherwise. Any other arrangement,
// and TRIREME_MPI_SHARED=off, goes by messages altogether.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/hybrid_communicator.h"
#include "trireme/comm/mpi/leave.h"
#include "trireme/comm/mpi/message_communicator.h"
#include "trireme/comm/processes.h"
#include "trireme/comm/shared_memory_communicator.h"

namespace trireme {
namespace {

using Seat = SharedMemoryCommunicator::Seat;

int RankIn(MPI_Comm comm) {
  int rank = 0;
  CheckMpi(MPI_Comm_rank(comm, &rank), "tell the rank");
  return rank;
}

int SizeOf(MPI_Comm comm) {
  int size = 0;
  CheckMpi(MPI_Comm_size(comm, &size), "tell the size");
  return size;
}

int Least(int value, MPI_Comm comm) {
  int least = 0;
  CheckMpi(MPI_Allreduce(&value, &least, 1, MPI_INT, MPI_MIN, comm), "compare numbers");
  return least;
}

// "process 3 on node7", of every rank of `comm`, numbered as in the world.
std::vector<std::string> Names(MPI_Comm comm) {
  struct Name {
    int rank;
    char host[64];
  };
  Name own{.rank = RankIn(MPI_COMM_WORLD), .host = ""};
  gethostname(own.host, sizeof(own.host) - 1);
  std::vector<Name> all(SizeOf(comm));
  CheckMpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, comm),
           "gather names");
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const Name& name : all) names.push_back(fmt::format("process {} on {}", name.rank, name.host));
  return names;
}

// A fair share of the processors this process may use: among all of its host that may use them too.
int OwnProcessors(MPI_Comm host) {
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof(own), &own);
  std::vector<cpu_set_t> all(SizeOf(host));
  CheckMpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, host),
           "compare processors");
  int sharers = 0;
  for (const cpu_set_t& other : all) {
    cpu_set_t both;
    CPU_AND(&both, &own, &other);
    sharers += CPU_COUNT(&both) > 0;
  }
  return std::max(1, CPU_COUNT(&own) / std::max(1, sharers));
}

// Whether the processes of this host can find together without the others.
bool FitsTheTree(MPI_Comm host, int world_rank, int world_size) {
  const int size = SizeOf(host);
  // Consecutive ranks, beginning at a multiple of their number; asked of all, because it needs all.
  const bool in_order =
      Least(world_rank, host) == world_rank / size * size && world_rank % size == RankIn(host);
  if (size > SharedMemoryCommunicator::kMostRanks) return false;
  if (size == world_size) return size > 1;
  return size > 1 && std::has_single_bit(static_cast<unsigned>(size)) && in_order;
}

class MpiProcesses final : public Processes {
 public:
  explicit MpiProcesses(double timeout_s) {
    const int rank = RankIn(MPI_COMM_WORLD), size = SizeOf(MPI_COMM_WORLD);
    CheckMpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host_),
             "find the processes of this host");
    processors_ = Least(OwnProcessors(host_), MPI_COMM_WORLD);
    spin_ = SizeOf(host_) <= ProcessorsOfHost();
    const char* set = std::getenv("TRIREME_MPI_SHARED");
    const std::string shared = set == nullptr ? "on" : set;
    if (const int pretended = std::atoi(shared.c_str()); pretended > 0) {
      MPI_Comm part;
      CheckMpi(MPI_Comm_split(host_, RankIn(host_) / pretended, rank, &part), "split the host");
      host_ = part;
    }
    // All processes must come to the same answer.
    const int own = shared != "off" && FitsTheTree(host_, rank, size) ? SizeOf(host_) : 0;
    const int least = Least(own, MPI_COMM_WORLD), most = -Least(-own, MPI_COMM_WORLD);
    if (least > 0 && least == most) {
      ShareMemory(timeout_s);
      ConnectHosts(timeout_s);
    } else {
      MPI_Comm copy;
      CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "connect");
      messages_.emplace(copy, Names(copy), spin_, timeout_s, LongestMessage());
      group_ = &*messages_;
    }
    world_.emplace(MPI_COMM_WORLD, Names(MPI_COMM_WORLD), spin_, timeout_s, LongestMessage(),
                   /*measured=*/false);
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  void Barrier() override { group_->Barrier(); }
  void Broadcast(std::span<float> values) override { group_->Broadcast(values); }
  void Broadcast(std::span<double> values) override { group_->Broadcast(values); }
  void Broadcast(std::string& bytes) override { group_->Broadcast(bytes); }
  void ReduceSum(std::span<float> values) override { group_->ReduceSum(values); }
  void ReduceSum(std::span<double> values) override { group_->ReduceSum(values); }
  void AllReduceSum(std::span<float> values) override { group_->AllReduceSum(values); }
  void AllReduceSum(std::span<double> values) override { group_->AllReduceSum(values); }
  std::vector<std::string> Gather(std::string bytes) override { return group_->Gather(std::move(bytes)); }
  std::vector<std::string> AllGather(std::string bytes) override {
    return group_->AllGather(std::move(bytes));
  }
  Traffic traffic() const override { return group_->traffic(); }
  std::vector<ProcessLink> links() const override { return group_->links(); }
  void Abort() override {
    group_->Abort();
    world_->Abort();
  }
  void Send(int to, std::span<const float> values) override { world_->Send(to, values); }
  void Receive(int from, std::span<float> values) override { world_->Receive(from, values); }
  // By messages, also inside a host.
  std::unique_ptr<PeerCommunicator> Split(int colour) override { return world_->Split(colour); }
  int processors() const override { return processors_; }

  void Leave(int code) override {
    if (code != 0) LeaveInTrouble(code);
    group_->Barrier();
    LeaveTogether(window_);
  }

 private:
  static int ProcessorsOfHost() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

  // Short ones are for tests: nobody has gigabytes to try it with.
  static std::size_t LongestMessage() {
    const char* set = std::getenv("TRIREME_MPI_LONGEST");
    if (set == nullptr) return MessageCommunicator::kLongest;
    const long long wanted = std::atoll(set);
    if (wanted <= 0 || wanted > static_cast<long long>(MessageCommunicator::kLongest) || wanted % 8 != 0) {
      Fail("TRIREME_MPI_LONGEST={}: a multiple of 8 up to {} is due", set, MessageCommunicator::kLongest);
    }
    return static_cast<std::size_t>(wanted);
  }

  // The first process of the host brings the seats of all.
  void ShareMemory(double timeout_s) {
    const int rank = RankIn(host_), size = SizeOf(host_);
    const MPI_Aint wanted = rank == 0 ? size * sizeof(Seat) + alignof(Seat) : 0;
    void* memory = nullptr;
    CheckMpi(MPI_Win_allocate_shared(wanted, 1, MPI_INFO_NULL, host_, &memory, &window_), "share memory");
    CheckMpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "share memory");
    MPI_Aint bytes = 0;
    int unit = 0;
    CheckMpi(MPI_Win_shared_query(window_, 0, &bytes, &unit, &memory), "share memory");
    auto room = static_cast<std::size_t>(bytes);
    auto* seats = static_cast<Seat*>(std::align(alignof(Seat), size * sizeof(Seat), memory, room));
    new (&seats[rank].published) std::atomic<std::uint64_t>(0);
    CheckMpi(MPI_Win_sync(window_), "share memory");
    CheckMpi(MPI_Barrier(host_), "share memory");
    // MPI goes on with a message only while its sender calls MPI, which may now wait here for the receiver.
    const auto meanwhile = [this] {
      if (world_) world_->LetMessagesMove();
    };
    inside_.emplace(seats, rank, Names(host_), ProcessorsOfHost(), timeout_s, meanwhile);
    group_ = &*inside_;
  }

  // The first process of each host speaks for it.
  void ConnectHosts(double timeout_s) {
    const int host_size = SizeOf(host_), world_size = SizeOf(MPI_COMM_WORLD);
    if (host_size == world_size) return;
    const bool leader = RankIn(host_) == 0;
    MPI_Comm leaders;
    CheckMpi(MPI_Comm_split(MPI_COMM_WORLD, leader ? 0 : MPI_UNDEFINED, RankIn(MPI_COMM_WORLD), &leaders),
             "connect the hosts");
    if (leader) messages_.emplace(leaders, Names(leaders), spin_, timeout_s, LongestMessage());
    hosts_.emplace(*inside_, leader ? &*messages_ : nullptr, RankIn(MPI_COMM_WORLD) / host_size,
                   world_size / host_size);
    group_ = &*hosts_;
  }

  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int processors_ = 1;
  bool spin_ = false;
  std::optional<SharedMemoryCommunicator> inside_;
  std::optional<MessageCommunicator> messages_;
  std::optional<HybridCommunicator> hosts_;
  std::optional<MessageCommunicator> world_;  // what goes from one rank to another
  Communicator* group_ = nullptr;
};

}  // namespace
}  // namespace trireme

extern "C" trireme::Processes* TriremeConnectMpi(double timeout_s) {
#ifdef MPICH_VERSION
  // Over TCP its UCX asks the other end for leave from 8 KB on, which takes longer than sending twice as
  // much.
  setenv("UCX_RNDV_THRESH", "64K", /*overwrite=*/0);
#endif
  int provided = MPI_THREAD_SINGLE;
  trireme::CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "start");
  if (provided < MPI_THREAD_FUNNELED)
    trireme::Fail("this MPI does not work beside threads: use another build of it");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return new trireme::MpiProcesses(timeout_s);
}
