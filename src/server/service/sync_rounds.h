// Workers in step, on one server: rounds of gradients, and on the first server the collective operations.
//
// A round of gradients belongs to a version of the parameters. An operation is complete when every worker
// that takes part has brought its share; it does without those that were given up, and without the `backup`
// slowest. The gradients are then added, the update is applied and everybody gets the new parameters.
//
// Where several servers hold parts of the parameters, the first one decides whose gradients make the round.
// Each server gives the workers the sums of squares of its part (kNorms) and says of whom; a worker that was
// told of others asks again for those that the first server named (kAskNorms), then comes back with the scale
// that all parts together give (kCommit). The first to do so completes the round.
//
// What a round and an operation gave is noted in the part, so that a worker whose answer was lost gets the
// same one again, even from a restarted server. Whoever is further behind is told so (kBehind), and waits for
// the next boundary, as a newcomer does.
//
// What the leader brings to a boundary at which others may enter is noted too. When all who take part are gone,
// those who come then go on from there, and the rounds since are undone on all servers (ParameterPart::GoBack): an
// iteration that nobody has ended is made again as a whole. Where nobody leads, because all who may were left behind,
// anybody brings it, and the boundary waits for one of these to enter.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/server/payload.h"
#include "trireme/server/service/in_step.h"
#include "trireme/server/service/turns.h"

namespace trireme {

class SyncRounds final : public Turns {
 public:
  explicit SyncRounds(ServedPart& served);

  void BeforeJoin(const Greeting& greeting, bool known, Deadline now) override;
  void Join(Member& member, const Greeting& greeting, bool known, const Header& request,
            Deadline now) override;
  bool Handle(Member& member, const Header& request, Incoming& message, Deadline now) override;
  void Rest(Member&, Deadline) override {}
  void Drop(const Member& member, Deadline now) override;
  void Advance(Deadline now) override;
  void OnTime(Deadline now) override;

 private:
  // A request that belongs to the round and has no answer yet.
  struct Asking {
    Header request;
    Ranks ranks;  // whose gradients are to be added; empty: whoever takes part
    Deadline since;
  };

  void Push(Member& member, const Header& request, Incoming& message, Deadline now);
  void AskNorms(Member& member, const Header& request, Incoming& message, Deadline now);
  void Commit(Member& member, const Header& request, Incoming& message, Deadline now);
  void Collect(Member& member, const Header& request, Incoming& message, Deadline now);

  bool first() const { return served_.index() == 0; }
  std::uint64_t version() const { return served_.part().version(); }
  // Ranks that an operation has to wait for: active members, and places that nobody has taken yet, so that a
  // run starts with all of its workers.
  std::vector<int> Missing(const std::function<bool(int)>& has) const;
  // Ranks whose gradients are there and which take part.
  Ranks Participants() const;
  // Whether what was begun then waits for nobody any longer.
  bool Complete(const std::function<bool(int)>& has, std::size_t present, bool needs_leader, Deadline begun,
                Deadline now);

  // What a worker has brought or waits for is no longer counted on.
  void Forget(const Member& member);
  // Whether the worker is where the round is. Answers it if not.
  bool BelongsToRound(Member& member, const Header& request);
  void AdvanceRound(Deadline now);
  void SendNorms(const Member& member, const Header& request, const Ranks& ranks);
  // `scales`: of no group, then of each.
  void ApplyRound(const Ranks& ranks, std::span<const float> scales);
  void AnswerRound(Member& member, const Header& request);
  void RefuseRound();
  void CompleteCollect();
  void RefuseCollect(const std::string& why);
  void NoteCollected(std::uint64_t number, const Collected& result);
  // Nobody is left who takes part: the newcomers are to begin where the last open boundary was.
  void BeginAnew();
  void NoteBoundary(std::uint64_t first, std::uint64_t last, std::string_view state);
  // Undoes what was made since a boundary by these names, `end` excluded, if anything was; whoever was in it is
  // behind.
  void GoBack(std::uint64_t begin, std::uint64_t end);
  void AnswerCollect(const Member& member, const Header& request);
  // `flags`: kBoundary, if the state is of this moment; kAnew, if all have gone back to that of `boundary`.
  void AdmitNewcomers(std::uint32_t flags, std::uint64_t boundary = 0);
  void LeaderSetsThePace();
  // Whether a boundary is to wait for somebody who may lead, and who is on its way to it.
  bool AwaitsALeader(Deadline now) const;
  void SendBehind(Member& member, const Header& request);

  ServedPart& served_;
  std::vector<bool> taken_;            // places that were ever taken, or are not waited for any longer
  std::optional<Deadline> recovered_;  // a restarted server waits until then for its workers to come back
  bool begun_;                         // something has been completed: newcomers wait for a boundary

  GradientRound round_;
  std::map<int, Asking> asking_;         // by rank
  std::optional<Ranks> decided_;         // on the first server: who makes the round, once it has told
  std::map<int, CollectInput> collect_;  // the operation under way, by rank
  Deadline collect_begun_;
  std::uint64_t next_ = 0;  // its number
  Collected last_;          // result of the one before
  // The last open boundary, by the number of operations up to it: as it was called first, and since somebody began
  // anew there last.
  std::uint64_t first_boundary_ = 0, boundary_ = 0;
  std::string state_;                          // what was brought there
  std::map<std::uint64_t, Header> newcomers_;  // by worker
};

}  // namespace trireme
