#include "trireme/train/boundary.h"

#include <type_traits>
#include <utility>

#include "trireme/base/state.h"

namespace trireme {

Decision BroadcastDecision(Communicator& comm, Decision own) {
  double values[] = {static_cast<double>(own.checkpoint), static_cast<double>(own.stop)};
  comm.Broadcast(std::span<double>(values));
  return {.checkpoint = values[0] != 0, .stop = values[1] != 0};
}

std::string EncodeBoundary(const Boundary& boundary, RunProgress& progress) {
  StateWriter out;
  out.PutValue("checkpoint", boundary.decision.checkpoint);
  out.PutValue("stop", boundary.decision.stop);
  if (boundary.common) out.PutText("common", *boundary.common);
  progress.VisitCommon([&](const char* name, auto& value) { out.PutValue(name, value); });
  return std::move(out).Encode();
}

Boundary DecodeBoundary(std::string_view encoded, RunProgress& progress) {
  const StateReader in(encoded);
  progress.VisitCommon(
      [&](const char* name, auto& value) { value = in.GetValue<std::decay_t<decltype(value)>>(name); });
  Boundary boundary{{in.GetValue<bool>("checkpoint"), in.GetValue<bool>("stop")}};
  if (in.Has("common")) boundary.common = in.GetText("common");
  return boundary;
}

}  // namespace trireme
