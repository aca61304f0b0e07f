// The actors of a process: threads that collect for its workers, which then only learn. Each worker has actors and a
// channel of its own. Actors of other processes may join (experience/actor_desk.h).
//
// Thread safety: each worker calls Begin for itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/experience/actor_service.h"
#include "trireme/experience/memory_channel.h"
#include "trireme/experience/remote_replay.h"
#include "trireme/experience/sent_experience.h"
#include "trireme/train/central_acting.h"
#include "trireme/train/stores.h"

namespace trireme {

class Actors {
 public:
  // `context` outlives it.
  explicit Actors(const RunContext& context);
  ~Actors() { End(/*over=*/false); }
  Actors(const Actors&) = delete;
  Actors& operator=(const Actors&) = delete;

  // What is sent to the worker of thread `thread`, the `rank`th of the run, from now on by new actors, whose randomness
  // follows from `seed` and the rank. An actor that fails ends the channel; the worker is then told why. `steps` were learned
  // from before by all workers: they say which version of the policy comes next, the same for all.
  SentExperience& Begin(int thread, int rank, std::uint64_t seed, std::int64_t steps);
  // The worker has missed what others have learned meanwhile: `steps`, with that.
  void GoOn(int thread, std::int64_t steps);
  // The same where replay servers remember what actors collect, for `draws` shards of the worker. Actors of this process join the
  // servers, too.
  RemoteReplay& BeginReplay(int thread, int rank, std::uint64_t seed, int draws);
  // Those of all workers end, also while they wait. Called when no worker runs any more. `over`: so is the run, and actors
  // of other processes need not wait for it.
  void End(bool over);
  // A worker has failed: others that wait for experience, which may never come, are told. Any thread may call it.
  void WorkerFailed() { worker_failed_.store(true); }
  // What chooses for the actors; null: each does for itself.
  const CentralInference* inference() const { return inference_ ? &inference_->service() : nullptr; }
  // Whoever waits for an environment on behalf of an actor need not wait any longer.
  bool ending() const { return ending_.load(); }

 private:
  struct Group {
    ~Group();
    void End(const std::string& why);  // waits for nobody

    std::unique_ptr<MemoryChannel> channel;
    std::optional<Schedule> schedule;
    std::unique_ptr<SentExperience> experience;
    std::unique_ptr<RemoteReplay> replay;  // instead of the three before
    std::vector<std::thread> threads;
  };

  void Act(Group& group, int index, std::uint64_t seed);
  void CollectAndSend(Group& group, int index, std::uint64_t seed);
  // asks: for whom others wait while it collects; null: nobody does.
  void CollectAndSend(ActorEnd& end, const ShardSpec& shard, Acting& acting, CentralInference::Member* asks);

  void Listen();
  // Actors of this process, the `process`th, that join replay servers.
  void JoinServers(int process);
  // Throws Error when a message would be too long for its way.
  void CheckMessages() const;
  std::vector<std::string> ReplayServers() const;
  // For a worker that has waited so long for experience. Throws Error when the run is to stop or another one has failed.
  void GiveUp(double waited_s);
  void GiveUp(double waited_s, bool nobody);

  const RunContext& context_;
  int per_worker_;
  std::optional<CentralActing> inference_;      // ends after all who ask it
  std::vector<std::unique_ptr<Group>> groups_;  // by thread
  std::atomic<bool> ending_{false}, worker_failed_{false};
  std::atomic<bool> waits_{false};  // people were told that nobody sends
  std::once_flag joined_servers_;
  std::vector<std::thread> of_servers_;    // see JoinServers
  std::mutex failure_mutex_;               // guards failure_
  std::string failure_;                    // of an actor that has joined replay servers
  std::unique_ptr<ActorService> service_;  // null: actors are of this process only. Ends before the channels
};

// How many of the actors of a process, which has as many as each process before it, join each of so many replay servers: over all
// processes an even part each.
std::vector<int> ActorsOfServers(int process, int actors, int servers);

}  // namespace trireme
