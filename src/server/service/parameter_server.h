// A parameter server: the parts of one run, and the workers that come to them.
//
// It has no settings of its own. The first worker says what the run is and brings the parameters to start
// from; later ones must agree. With a folder it finds its parts again after any kind of end.
//
// A stream says hello once. What a client sends that no sane one does, or that there is no memory for, closes
// its stream and harms nobody else. Little is held for clients that have not proved themselves: a stream is a
// stranger until it says a hello that fits, or that workers live which the server knows; strangers are few,
// and are closed after a time. Until it has joined a client may send short messages only, but for the one
// that was asked for the state.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/server/disk/folder_lock.h"
#include "trireme/server/service/part_service.h"

namespace trireme {

struct ParameterServerOptions {
  std::filesystem::path folder;  // empty: memory only
  bool durable = false;
  bool audit = false;        // a list of all updates, in the folder
  bool accept_loss = false;  // recover what can be recovered of damaged files
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for a reader
};

class ParameterServer final : public ServerTransport::Handler {
 public:
  // Recovers what the folder holds. Throws Error.
  ParameterServer(ServerTransport& transport, ParameterServerOptions options);
  ~ParameterServer() override;

  void OnOpen(PeerId peer, const std::string& address) override;
  void OnMessage(PeerId peer, Incoming& message) override;
  void OnClose(PeerId peer) override;
  Deadline OnTime(Deadline now) override;

 private:
  struct Peer {
    std::string address;
    Deadline since;
    bool stranger = true;  // to be closed before others
    int part = -1;         // that of its hello; none yet
  };
  // A worker that has come to a part that is still to be made.
  struct Newcomer {
    PeerId peer;
    Greeting greeting;
    std::uint64_t sequence;
    Deadline since;
  };

  // Does something for a peer, and closes its stream when that fails.
  void Guard(PeerId peer, const std::function<void()>& act);
  void Handle(PeerId peer, Incoming& message);
  void Refuse(PeerId peer, const std::string& why);
  void Hello(PeerId peer, const Header& header, Incoming& message);
  void TakeState(PeerId peer, const Header& header, Incoming& message);
  void Alive(PeerId peer, const Header& header, Incoming& message);
  void Join(const Newcomer& newcomer);
  void AskForState(int part);
  void TellWaiting(Deadline now);
  void CloseStranger(PeerId peer, const std::string& why);
  PartStorage StorageOf(int part) const;

  ServerTransport& transport_;
  ParameterServerOptions options_;
  std::unique_ptr<ServerFolderLock> lock_;
  std::map<PeerId, Peer> peers_;
  std::map<int, std::unique_ptr<PartService>> parts_;
  std::map<int, std::vector<Newcomer>> waiting_;  // by part; the first one was asked for the state
};

}  // namespace trireme
