#include "trireme/train/boundary.h"

#include <type_traits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/state.h"

namespace trireme {

Decision BroadcastDecision(Communicator& comm, Decision own) {
  double values[] = {static_cast<double>(own.hand_in), static_cast<double>(own.stop)};
  comm.Broadcast(std::span<double>(values));
  return {.hand_in = static_cast<HandIn>(values[0]), .stop = values[1] != 0};
}

std::string EncodeBoundary(const Boundary& boundary, RunProgress& progress) {
  StateWriter out;
  out.PutValue("hand_in", static_cast<std::uint8_t>(boundary.decision.hand_in));
  out.PutValue("stop", boundary.decision.stop);
  out.PutValue("again", boundary.decision.again);
  if (boundary.common) out.PutText("common", *boundary.common);
  out.PutValue("eval_pending", progress.eval_pending);
  progress.VisitCommon([&](const char* name, auto& value) { out.PutValue(name, value); });
  return std::move(out).Encode();
}

Boundary DecodeBoundary(std::string_view encoded, RunProgress& progress) {
  const StateReader in(encoded);
  progress.VisitCommon(
      [&](const char* name, auto& value) { value = in.GetValue<std::decay_t<decltype(value)>>(name); });
  progress.eval_pending = in.GetValue<bool>("eval_pending");
  Boundary boundary{{.hand_in = static_cast<HandIn>(in.GetValue<std::uint8_t>("hand_in")),
                     .stop = in.GetValue<bool>("stop"),
                     .again = in.GetValue<bool>("again")}};
  if (boundary.decision.hand_in > HandIn::kStates) Fail("a boundary asks for what nobody has");
  if (in.Has("common")) boundary.common = in.GetText("common");
  return boundary;
}

}  // namespace trireme
