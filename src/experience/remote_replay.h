// A learner's draws from replay servers (replay_desk.h): what was asked for early comes while it learns.
//
// Each server owes some draws all the time; when half of them are used it is asked for as many again, with the errors of
// those that were. Servers take turns among those who have an answer ready, so one that is slow, frozen or gone holds up
// nobody as long as another one answers. Who is gone is looked for again. When none answers the learner waits, and says
// so.
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
    double wait_s = 60;        // for servers, of whom none answers
    int ahead = 8;             // draws that a server owes
    // Throws when the learner is to wait no longer, as it looks now and then.
    std::function<void(double waited_s)> give_up = [](double) {};
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

  // The run has ended: tells the servers, and with them their actors. Waits some seconds for those that do not answer.
  void EndRun();

  const ReceivedExperience& received() const { return received_; }

 private:
  struct Server;

  // Whether there is a stream, or comes until then.
  bool Connect(Server& server, Deadline deadline);
  void Lose(Server& server);
  // Sends what waits to be sent, as far as it goes at once.
  void Push(Server& server);
  // Asks for as many draws as were used, if it is time to.
  void Ask(Server& server);
  // The next draw of this server, or none until then.
  bool Take(Server& server, Deadline deadline);
  // The next message with draws.
  bool Receive(Server& server, Deadline deadline);
  void Look(double waited_s);
  bool TellEnd(Server& server, Deadline end);
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
};

}  // namespace trireme
