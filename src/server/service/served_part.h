// A part of the parameters and the workers it serves: what PartService and every way of taking turns share.
//
// Runs in the server's event loop; nothing here blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/codec/codec.h"
#include "trireme/server/disk/parameter_part.h"
#include "trireme/server/protocol.h"
#include "trireme/server/service/held_params.h"
#include "trireme/server/service/membership.h"

namespace trireme {

// Writes a line for the server's reader.
using Say = std::function<void(const std::string&)>;

class ServedPart {
 public:
  // `recovered`: workers that the part knew may come back.
  ServedPart(ServerTransport& transport, const RunTerms& terms, int index,
             std::unique_ptr<ParameterPart> part, Say say, bool recovered);

  const RunTerms& terms() const { return terms_; }
  int index() const { return index_; }
  const ParameterPart& part() const { return *part_; }
  Membership& members() { return members_; }
  const Membership& members() const { return members_; }
  bool recovered() const { return recovered_; }
  // Until then workers of before a restart may come back.
  Deadline all_back() const { return all_back_; }
  Clock::duration lease() const { return Seconds(terms_.lease_s); }
  Clock::duration patience() const { return Seconds(terms_.round_s); }
  bool finished() const;  // the run has ended
  // Bytes of a message to a worker, or from one.
  std::size_t most_bytes() const { return transport_.limits().message; }

  // The statistics behind the gradient of a push. Throws Error when it has none that fits.
  std::size_t StatisticsOf(const Header& request) const;
  // Reads the gradient of a push, its statistics and its groups, and checks it all; statistics may be anything.
  // Requires room for them. Throws Error.
  ParameterGroups ReadGradient(const Header& request, Incoming& message, std::span<float> values) const;
  // Change the part. Throw Error, with kLater when the disk fails.
  void Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note = {});
  void Note(const std::string& name, const std::string& value);
  bool GoBack(std::uint64_t mark);
  void Finish();

  // An answer with the state of the run in its header.
  Header AnswerTo(const Header& request, MessageKind kind, std::uint32_t flags = 0) const;
  void Send(const Member& member, Outgoing message);
  void SendWaiting(const Member& member, const Header& request, const std::string& for_whom);
  // The parameters, or what has changed since `member` was sent some, then `extras`, `doubles` and `bytes`.
  void SendParams(const Member& member, const Header& request, std::uint32_t flags = 0,
                  std::span<const float> extras = {}, std::span<const double> doubles = {},
                  std::string_view bytes = {});
  // In step: the same for a worker that was in the last round.
  void SendRound(const Member& member, const Header& request, std::span<const float> extras,
                 std::span<const double> doubles, std::string_view bytes);
  struct WelcomeOf {
    std::uint64_t number = 0;  // of the next operation
    std::uint32_t flags = 0;
    std::uint64_t boundary = 0;
    std::string_view state = {};
  };
  void SendWelcome(const Member& member, const Header& request, const WelcomeOf& welcome);
  // The member is about to be sent all parameters in an answer with this header.
  void NoteWhole(const Member& member, Header& answer);
  // It holds nothing any more.
  void ForgetHeld(const Member& member);
  // Ends the worker's stream, if it has one.
  void Close(const Member& member, const std::string& why);
  void SayOf(const Member& member, const std::string& what) const { SayOf(member.rank, what); }
  void SayOf(int rank, const std::string& what) const;

 private:
  // `delta`: encoded parameters; empty: all of them.
  Outgoing ParamsMessage(Header header, std::span<const std::byte> delta, std::span<const float> extras,
                         std::span<const double> doubles, std::string_view bytes) const;

  ServerTransport& transport_;
  RunTerms terms_;
  int index_;
  std::unique_ptr<ParameterPart> part_;
  std::unique_ptr<Codec> codec_;      // of gradients; null: none
  std::unique_ptr<HeldParams> held_;  // of workers on their own, where parameters are compressed
  AlignedBuffer<std::byte> delta_;    // for one message to one of them
  Membership members_;
  bool recovered_;
  Deadline all_back_;
  Say say_;
};

}  // namespace trireme
