// A learner's draws from replay servers (replay_desk.h): what was asked for early comes while it learns.
//
// Servers owe some draws all the time, each an even part of them; when half of its part is used it is asked for as many
// again, with the errors of those that were. Servers take turns among those who have an answer ready, so one that is slow,
// frozen or gone holds up nobody as long as another one answers, and the others owe its part. Who is gone is looked for
// again. When none answers the learner waits, and says so. Servers whose draws have to wait say once a second that they are
// there; one that says nothing is away, as is one without a stream.
//
// Thread safety: belongs to the learner's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/experience/replay_message.h"
#include "trireme/experience/replay_source.h"
#include "trireme/experience/sent_experience.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class RemoteReplay final : public ReplaySource {
 public:
  struct Options {
    Transport* transport = nullptr;         // null: what the address says
    std::vector<std::string> servers = {};  // addresses, at least one
    Security security = {};
    std::string version = {};  // of the program
    double wait_s = 60;        // for servers without which nothing comes
    // Draws that are owed by all servers together. What is drawn early knows less of what was learned meanwhile: the next
    // batch and one more, while half of the next arrives the other half is learned from.
    int ahead = 8;
    // Throws when the learner is to wait no longer, as it looks now and then. `collected`: servers that are there have actors.
    std::function<void(double waited_s, bool collected)> give_up = [](double, bool) {};
    std::function<void(const std::string&)> say = [](const std::string&) {};
  };
  // `run` for each server, but for which one it is. Throws Error when a server refuses, or none is there in wait_s.
  RemoteReplay(Options options, ReplayRun run);
  ~RemoteReplay() override;

  void Begin(std::span<const float> params) override;
  bool Holds(int, std::uint64_t) const override { return true; }  // a draw comes when there is enough
  const ReplayDraw& Draw(int shard, std::uint64_t number, double beta) override;
  void Correct(int shard, std::span<const float> errors) override;
  EpisodeTotals TakeEpisodes(int shard) override;
  void Save(StateWriter&) const override {}  // servers do
  void Load(const StateReader&) override {}

  // The run has ended: tells the servers, and with them their actors. Those that say nothing are waited for until two seconds
  // after `begun`, and nobody longer than five.
  void EndRun(Deadline begun = Clock::now());

  const ReceivedExperience& received() const { return received_; }

 private:
  struct Server;

  // Whether there is a stream, or comes until then.
  bool Connect(Server& server, Deadline deadline);
  void Lose(Server& server);
  void WentAway(Server& server, const std::string& why, bool closed);
  // Sends what waits to be sent, as far as it goes at once.
  void Send(Server& server);
  // The same, and notices when the stream is closed.
  void Push(Server& server);
  // Not one that says nothing while others speak.
  bool Counts(const Server& server) const;
  // The part of a server of the draws that are owed.
  int Part() const;
  // Asks for as many draws as were used, if it is time to.
  void Ask(Server& server);
  // The next draw of this server, or none until then.
  bool Take(Server& server, Deadline deadline);
  // The next message with draws.
  bool Receive(Server& server, Deadline deadline);
  // Whether it has any.
  bool TakeAnswer(Server& server, Incoming& message);
  // Who may have something soon: waiting for one that is silent would be time lost.
  Server& LikelyNext();
  // For a draw that has waited since `begun_s`. Throws Error when it has waited too long.
  void Look(double begun_s);
  void TellAway(Server& server);
  enum class Farewell { kAwaited, kHeard, kUseless };
  // A step towards it, which waits for nothing.
  Farewell TellEnd(Server& server);
  std::string Names() const;  // of the servers

  Options options_;
  std::atomic<bool> ending_{false};  // for those that connect
  ReplayRun run_;
  RowLayout layout_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::size_t turn_ = 0;  // whose is next
  Server* drawn_from_ = nullptr;
  ReplayDraw draw_;
  AlignedBuffer<float> records_;
  Outgoing policy_;  // that was published last
  EpisodeTotals episodes_;
  ReceivedExperience received_;
  double beta_ = 0;
  bool said_ = false;  // that nothing comes
  bool over_ = false;  // whoever is connected from now on is told so
};

}  // namespace trireme
