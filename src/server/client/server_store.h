// The `server` store: parameters and optimizer live on parameter servers, in one part or several.
//
// Asynchronous (and with bounded staleness): a push goes to all servers, which apply it at once and send back
// the new parameters. With `overlap` the worker does not wait for them: it computes its next gradient
// meanwhile, with the parameters it has, and takes the new ones at the next pull at which they are there.
//
// In step: a push waits for the gradients of all workers; the result is that of the allreduce store, bit for
// bit.
#pragma once

#include <memory>
#include <optional>

#include "trireme/codec/gradient_encoder.h"
#include "trireme/server/client/server_session.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

// Both require a session that lives longer; they join it at their first use. Throw Error, ServerLost and, in
// step, FellBehind.
class ServerStore : public ParameterStore {
 public:
  explicit ServerStore(ServerSession& session);

  std::span<const float> params() const override {
    return kept_.empty() ? std::as_const(session_).params() : std::span<const float>(kept_);
  }
  Traffic traffic() const override;
  Staleness staleness() const override { return staleness_; }
  double ResidualNorm() const override { return encoder_ ? encoder_->ResidualNorm() : 0; }
  // As the servers have them now; when they cannot be reached any more, what this worker last saw, without
  // moments (Load takes zeros then).
  void Save(StateWriter& out) const override;
  // Offers the state to servers that have none. Requires that the session has not joined yet.
  void Load(const StateReader& in) override;
  // The residuals of compressed gradients.
  void SaveOwn(StateWriter& out) const override;
  std::string LoadOwn(const StateReader& in) override;
  // From now on params() and what is saved are these, whatever the servers have: parameters that have been
  // found good, while others go on changing theirs.
  void Keep(std::span<const float> params) { kept_.assign(params.begin(), params.end()); }

 protected:
  // The part of `gradient` that belongs to a server, compressed if the run says so, and `extras`, as a push.
  Outgoing PushMessage(Header& header, int server, std::span<const float> gradient,
                       std::span<const float> extras, const UpdateRule& rule);

  ServerSession& session_;
  std::optional<GradientEncoder> encoder_;
  std::vector<float> owed_;       // a residual of a run that was compressed before: goes with the next push
  std::int64_t bytes_saved_ = 0;  // of pushes
  Staleness staleness_;
  std::uint64_t pushes_ = 0;
  std::vector<float> kept_;
};

// `audit`: if not empty, a file that gets a line "server worker sequence" for every push that was
// acknowledged.
std::unique_ptr<ServerStore> MakeAsyncServerStore(ServerSession& session, bool overlap,
                                                  const std::string& audit = "");
// `comm`: of the same session, for Share().
std::unique_ptr<ServerStore> MakeSyncServerStore(ServerSession& session, Communicator& comm);

}  // namespace trireme
